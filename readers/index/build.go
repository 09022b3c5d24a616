package index

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Source is the file that an index is made of. Its records are read from front to back, and damage is found.
type Source struct {
	Slots int // of a record
	// Open opens the file at its first record.
	Open func() (record.Records, error)
	// SkipDamage: damaged records are left out and counted. Otherwise damage is an error.
	SkipDamage bool
	// Locate adds the place to an error. record is the number of the next record.
	Locate func(err error, record int64) error
}

// errWide is the error that a position needs two words.
var errWide = errors.New("a position needs two words")

// Build reads a file and writes its index, atomically. It ends with an error when ctx is done.
func Build(ctx context.Context, path string, key Key, from Source) error {
	err := build(ctx, path, key, 1, from)
	if err == errWide {
		err = build(ctx, path, key, 2, from)
	}
	return err
}

func build(ctx context.Context, path string, key Key, words int, from Source) (err error) {
	r, err := from.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	if d, can := r.(record.Describer); can {
		_, _, _ = d.Describe() // some formats know the position then; an error is also that of Read
	}
	to, err := storage.CreatePatched(path, "none")
	if err != nil {
		return err
	}
	defer to.Abort()
	if _, err := to.Write(make([]byte, headerSize)); err != nil {
		return err
	}
	sum := crc32.New(castagnoli)
	count, damaged, err := scan(ctx, io.MultiWriter(to, sum), words, r, from)
	if err != nil {
		return err
	}
	head := []byte(magic)
	order := binary.LittleEndian
	head = order.AppendUint32(head, 0)
	head = order.AppendUint32(head, uint32(words))
	for _, n := range []uint64{uint64(key.Size), uint64(key.Changed), key.Made, uint64(damaged), uint64(count)} {
		head = order.AppendUint64(head, n)
	}
	head = order.AppendUint64(head, uint64(sum.Sum32()))
	order.PutUint32(head[8:], headerCRC(head))
	if err := to.Patch(0, head); err != nil {
		return err
	}
	return to.Commit()
}

// scan reads all records and writes their positions.
func scan(ctx context.Context, to io.Writer, words int, r record.Records, from Source) (count, damaged int64, err error) {
	seeker := r.(record.Seeker) // the caller has checked this
	out := make([]*pyfeed.Tuple, 1)
	pyfeed.NewTuples(out, from.Slots)
	defer func() { pyfeed.ReleaseAll(out) }()
	var word [16]byte
	for {
		if (count+damaged)%1024 == 0 {
			if err := ctx.Err(); err != nil {
				return 0, 0, context.Cause(ctx)
			}
		}
		for i := range out[0].Slots {
			out[0].Slots[i].Drop()
		}
		p, known := seeker.Position()
		n, err := r.Read(out)
		if err == nil || n > 0 {
			err = r.CheckTruncated()
		}
		switch {
		case err == io.EOF:
			if err = r.CheckUnchanged(); err != nil {
				return 0, 0, from.Locate(err, count)
			}
			return count, damaged, nil
		case err == storage.ErrInterrupted && ctx.Err() != nil:
			return 0, 0, context.Cause(ctx)
		case err == storage.ErrInterrupted:
			continue
		case err != nil:
			e, is := err.(*pyfeed.Error)
			if !from.SkipDamage || !is || e.Kind != pyfeed.Corrupt {
				return 0, 0, from.Locate(err, count)
			}
			damaged++
			if err = resync(ctx, r); err == io.EOF {
				return count, damaged, nil
			}
			if err != nil {
				return 0, 0, from.Locate(err, count)
			}
			continue
		case !known:
			return 0, 0, from.Locate(pyfeed.Errorf(pyfeed.Unsupported, "expected a record whose position is known, found one behind damage"), count)
		case p.Inner != 0 && words == 1:
			return 0, 0, errWide
		}
		binary.LittleEndian.PutUint64(word[:], uint64(p.Offset))
		binary.LittleEndian.PutUint64(word[8:], uint64(p.Inner))
		if _, err := to.Write(word[:8*words]); err != nil {
			return 0, 0, err
		}
		count++
	}
}

// resync skips damage. It returns io.EOF if nothing follows.
func resync(ctx context.Context, r record.Records) error {
	for {
		err := r.Resync()
		if err == storage.ErrInterrupted && ctx.Err() == nil {
			continue
		}
		if torn := r.CheckTruncated(); torn != nil {
			return torn
		}
		if err == storage.ErrInterrupted {
			return context.Cause(ctx)
		}
		return err
	}
}
