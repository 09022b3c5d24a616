package shared

import (
	"fmt"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

const offsetBytes = 8

// tupleOf makes a tuple of the contents of cell i and leases the cell to the consumer. The worker that wrote the cell
// may be broken, and may still be writing. Therefore each descriptor is copied once, and only the copy is checked and
// used.
func (r *Ring) tupleOf(i int) (*pyfeed.Tuple, error) {
	n := int(r.at.numSlots)
	found := append([]tensor(nil), view[tensor](r.data, r.at.tensorsAt, int(r.at.ringCells)*n)[i*n:(i+1)*n]...)
	at := int(r.at.dataAt) + i*int(r.at.stride)
	cell := r.data[at : at+int(r.at.cellBytes)]
	lod, err := r.copyOffsets(found, cell)
	if err != nil {
		return nil, err
	}
	t := pyfeed.NewTuple(n)
	used := 0
	for j := range found {
		end, err := found[j].fill(&t.Slots[j], cell)
		if err != nil {
			t.Release()
			if lod != nil {
				lod.Release()
			}
			return nil, fmt.Errorf("slot %d: %w", j, err)
		}
		used = max(used, end)
	}
	r.populate(i, used)
	l := &r.leases[i]
	r.lentCells.Add(1)
	r.references.Add(1)
	l.lod = lod
	l.buffer.Wrap(unsafe.Pointer(unsafe.SliceData(cell)), used, l, n)
	var offsets []int64
	if lod != nil {
		offsets = unsafe.Slice((*int64)(lod.Pointer()), lod.Size()/offsetBytes)
	}
	for j := range t.Slots {
		s := &t.Slots[j]
		s.Hold(s.Data, &l.buffer)
		for _, count := range found[j].lodCount[:found[j].lodLevels] {
			s.LoD = append(s.LoD, offsets[:count:count])
			offsets = offsets[count:]
		}
	}
	return t, nil
}

// copyOffsets copies the LoD offsets of a tuple out of shared memory, where a worker could change them. It returns nil
// if there are none.
func (r *Ring) copyOffsets(found []tensor, cell []byte) (*memory.Buffer, error) {
	all, limit := uint64(0), uint64(len(cell))/offsetBytes
	for j := range found {
		d := &found[j]
		if d.lodLevels > pyfeed.MaxLoDLevels {
			return nil, fmt.Errorf("slot %d: LoD: expected at most %d levels, found %d", j, pyfeed.MaxLoDLevels, d.lodLevels)
		}
		for k := range d.lodLevels {
			at, count := d.lodAt[k], d.lodCount[k]
			if at%offsetBytes != 0 || at > uint64(len(cell)) || count > (uint64(len(cell))-at)/offsetBytes || count > limit-all {
				return nil, fmt.Errorf("slot %d: LoD level %d: %d offsets at byte %d are not within the %d bytes of a cell", j, k, count, at, len(cell))
			}
			all += count
		}
	}
	if all == 0 {
		return nil, nil
	}
	b, err := r.offsets.Get(int(all * offsetBytes))
	if err != nil {
		return nil, err
	}
	to := b.Bytes()
	for j := range found {
		d := &found[j]
		for k := range d.lodLevels {
			to = to[copy(to, cell[d.lodAt[k]:][:d.lodCount[k]*offsetBytes]):]
		}
	}
	return b, nil
}

// fill sets the dtype, dims and data of s to a tensor in a cell, and returns the offset of its end. The queue checks
// later whether dtype, dims and LoD match its slots.
func (d *tensor) fill(s *pyfeed.LoDTensor, cell []byte) (end int, err error) {
	if s.DType = pyfeed.DType(d.dtype); !s.DType.Valid() {
		return 0, fmt.Errorf("expected a dtype, found number %d", d.dtype)
	}
	if d.rank < 0 || d.rank > pyfeed.MaxRank {
		return 0, fmt.Errorf("rank: expected at most %d dimensions, found %d", pyfeed.MaxRank, d.rank)
	}
	_ = s.SetDims(d.dims[:d.rank])
	size, err := s.Measure()
	if err != nil {
		return 0, err
	}
	room := uint64(len(cell))
	if d.nbytes != uint64(size) || d.dataAt%alignment != 0 || d.dataAt > room || d.nbytes > room-d.dataAt {
		return 0, fmt.Errorf("%d bytes at byte %d are not the %d of dims %v of %v, aligned and within the %d of a cell",
			d.nbytes, d.dataAt, size, s.Dims(), s.DType, room)
	}
	end = int(d.dataAt) + size
	s.Data = cell[d.dataAt:end:end]
	return end, nil
}
