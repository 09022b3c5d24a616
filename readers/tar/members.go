package tar

import (
	"bytes"
	"fmt"
	"io"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// member is a regular member.
type member struct {
	name []byte // valid until the next Peek
	lead int    // bytes from the position, where its first header is, to its data
	size int    // of the data
}

// maxHeaderBytes is the largest size, in bytes, of an extra header about the next member. Names are never longer.
const maxHeaderBytes = 1 << 20

// header finds the next regular member. Then the position is at its first header, and all its headers are in memory. If
// there is no member, err says why.
func (r *records) header(m *member) bool {
	if r.err != nil {
		return false
	}
again:
	if r.skipping.left > 0 && !r.rest() || r.zeroBlocks.n > 0 && !r.zeros() {
		return false
	}
	b, err := r.f.Peek(blockSize)
	at := 0
	var x extra
	for {
		if len(b) < at+blockSize {
			r.setShortError(b, at, err)
			return false
		}
		h := (*block)(b[at:])
		offset := r.f.Offset() + int64(at)
		if offset > r.valid {
			if at == 0 && h.zero() {
				if !r.zeros() {
					return false
				}
				goto again
			}
			if !h.valid() {
				r.badHeader(h, offset)
				return false
			}
			r.valid = offset
		}
		size, ok := h.size()
		if x.sized {
			size, ok = x.size, true
		}
		if !ok {
			r.damage(atNextHeader, offset+blockSize, offset+124, "size of a member: expected octal digits, found %q", h[124:136])
			return false
		}
		t := h[156]
		switch t {
		case typePax, typeSolarisPax, typeGlobalPax, typeLongName, typeLongLink:
			if size > maxHeaderBytes || at > 4*maxHeaderBytes {
				r.damage(atNextHeader, offset+blockSize, offset, "expected at most %d bytes about the next member, found %d", maxHeaderBytes, size)
				return false
			}
			need := at + blockSize + roundToBlocks(int(size)) + blockSize
			if len(b) < need {
				if b, err = r.f.Peek(need); len(b) < need {
					r.setShortError(b, at+blockSize+roundToBlocks(int(size)), err)
					return false
				}
			}
			at += blockSize
			if !r.readHeader(&x, t, b[at:at+int(size)], offset) {
				return false
			}
			at += roundToBlocks(int(size))
			continue
		case typeSparse, typeContinued:
			x.sparse = true
		}
		if x.sparse {
			r.damage(atNextHeader, offset+blockSize, offset, "member %.200q: expected a whole file, found a sparse one or a part of one, "+
				"which are not read", h.name(&r.nameBuf))
			r.kind(pyfeed.Unsupported)
			return false
		}
		m.name = x.name
		if !x.named {
			m.name = h.name(&r.nameBuf)
		}
		m.lead, m.size = at+blockSize, int(size)
		switch {
		case t == typeRegular || t == typeContiguous:
			return true
		case t == typeOldRegular && !bytes.HasSuffix(m.name, []byte{'/'}):
			return true
		case t >= typeLink && t <= typeFIFO || t == typeOldRegular:
			m.size = 0
		}
		if !r.pass(m) {
			return false
		}
		goto again
	}
}

// readHeader adds to x what an extra header at an offset says about the next member.
func (r *records) readHeader(x *extra, t byte, b []byte, offset int64) bool {
	switch t {
	case typeLongName:
		if !x.pathSet {
			r.nameBuf = append(r.nameBuf[:0], text(b)...)
			x.name, x.named = r.nameBuf, true
		}
	case typePax, typeSolarisPax:
		if at, expected := x.pax(b, &r.nameBuf); expected != "" {
			r.damage(atNextHeader, offset+blockSize, offset+blockSize+int64(at), "pax header: expected %s", expected)
			return false
		}
	case typeGlobalPax:
		var all extra
		var buf []byte
		at, expected := all.pax(b, &buf)
		if expected == "" && (all.named || all.sized || all.sparse) {
			at, expected = 0, "nothing about the name and size of all members"
		}
		if expected != "" {
			r.damage(atNextHeader, offset+blockSize, offset+blockSize+int64(at), "global pax header: expected %s", expected)
			return false
		}
	}
	return true
}

// badHeader sets the error about a header that is not valid.
func (r *records) badHeader(h *block, offset int64) {
	what := fmt.Sprintf("checksum %q", text(h[148:156]))
	if want, ok := octal(h[148:156]); ok && !h.zero() {
		what = fmt.Sprintf("%d, not %d", h.sum(), want)
	} else if h.zero() {
		what = "zeros"
	}
	r.damage(atNextHeader, offset+blockSize, offset, "expected the header of a member, with its checksum, found %s", what)
}

// setShortError sets the error if the file ends, or cannot be read, at bytes after the position, where a header should
// be.
func (r *records) setShortError(b []byte, at int, err error) {
	if err != nil {
		r.err, r.resumeAt = err, noResume
		return
	}
	end := r.f.Offset() + int64(len(b))
	left := end % blockSize
	switch {
	case r.ended, r.toEnd && len(b) == 0 && left == 0:
		r.end()
	case len(b) > 0:
		r.damage(noResume, 0, r.f.Offset()+int64(min(at, len(b))), "expected a header of %d bytes, found %d before the end of the file",
			blockSize, max(0, len(b)-at))
	case left > 0:
		r.damage(noResume, 0, end, "expected %d more bytes to fill a block, found the end of the file", blockSize-left)
	default:
		r.damage(noResume, 0, end, "expected a member, or the zeros that end an archive, found the end of the file: "+
			"it may have been cut, or never been closed (option end \"file\" reads such files)")
	}
}

// end ends the archive.
func (r *records) end() {
	if r.err = r.f.CheckTruncated(); r.err == nil {
		r.err = io.EOF
	}
	r.resumeAt = noResume
}

// zeroRun is a run of blocks of zeros.
type zeroRun struct {
	begin int64 // offset of the first
	n     int
}

// zeros handles a block of zeros at the position: the archive ends, unless it ends only with the file. It returns true
// if the search for a member goes on. After an interruption, the next call goes on.
func (r *records) zeros() bool {
	defer func() {
		if !r.interrupted() {
			r.zeroBlocks.n = 0
		}
	}()
	if r.zeroBlocks.n == 0 {
		r.zeroBlocks.begin = r.f.Offset()
	}
	for begin := r.zeroBlocks.begin; ; r.zeroBlocks.n++ {
		b, err := r.f.Peek(blockSize)
		if err == nil && r.pollDue(r.zeroBlocks.n) {
			err = r.f.Poll()
		}
		if err != nil {
			r.err, r.resumeAt = err, noResume
			return false
		}
		b = b[:min(len(b), blockSize)]
		zero := len(bytes.TrimRight(b, "\x00")) == 0
		switch {
		case r.toEnd && (!zero || len(b) == 0):
			return true
		case len(b) < blockSize:
			r.f.Skip(len(b))
			r.ended = true
			r.end()
			return false
		case r.zeroBlocks.n == 1 && !zero:
			r.damage(atNextHeader, begin+blockSize, begin+blockSize, "expected a second block of zeros at the end of the archive, found %q...", b[:16])
			return false
		case r.zeroBlocks.n > 1 && !zero && (*block)(b).valid():
			// Bytes after the end are ignored, but a member there would be lost.
			r.damage(atInstance, r.f.Offset(), begin, "expected the end of the archive after blocks of zeros, found a member after them, "+
				"at byte %d (option end \"file\" reads the rest)", r.f.Offset())
			return false
		}
		r.f.Skip(len(b))
	}
}

// pollDue reports whether to poll at the n-th of many blocks. It also unmaps the windows of a mapped file before the
// position.
func (r *records) pollDue(n int) bool {
	due := n%(storage.PollEvery/blockSize) == storage.PollEvery/blockSize-1
	if due && r.f.IsMapped() {
		r.hold.retain()
		r.f.Hold(1).Release()
	}
	return due
}

// skippedMember is a member that is being skipped.
type skippedMember struct {
	offset int64 // of its first header
	size   int
	left   int // bytes from the position to the next header
}

// pass skips a member.
func (r *records) pass(m *member) bool {
	offset := r.f.Offset()
	if !r.fits(m) {
		return false
	}
	r.f.Skip(m.lead)
	r.skipping = skippedMember{offset, m.size, roundToBlocks(m.size)}
	return r.rest()
}

// rest skips the rest of a member. After an interruption, the next call of header goes on.
func (r *records) rest() bool {
	for r.skipping.left > 0 {
		b, err := r.f.Peek(1)
		if err != nil {
			r.err, r.resumeAt = err, noResume
			return false
		}
		if len(b) == 0 {
			m := r.skipping
			r.skipping = skippedMember{}
			if missing := m.left - (roundToBlocks(m.size) - m.size); missing > 0 {
				r.damage(noResume, 0, m.offset, "expected a member of %d bytes, found %d before the end of the file", m.size, m.size-missing)
				return false
			}
			return true
		}
		n := min(len(b), r.skipping.left)
		r.f.Skip(n)
		r.skipping.left -= n
	}
	return true
}

// fits returns false and sets an error if the file is known to be too short for a member.
func (r *records) fits(m *member) bool {
	left := r.f.Size() - r.f.Offset() - int64(m.lead)
	if r.f.Size() >= 0 && int64(m.size) > left {
		r.damage(noResume, 0, r.f.Offset(), "expected a member of %d bytes, found %d before the end of the file", m.size, left)
		return false
	}
	return true
}
