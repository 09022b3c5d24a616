package recordio

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"

	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// unpacker decompresses chunks, a piece at a time, into memory of the Pool's, of which the records are views.
//
// A piece at a time, because nothing says beforehand what a chunk comes to: a gzip member of a megabyte may hold
// a gigabyte. So there is memory for one piece, or for the record that is larger, as far as it has really come.
type unpacker struct {
	stop  *storage.Interrupt
	pool  *memory.Pool
	block *memory.Buffer
	data  []byte // of block, as far as it is filled
	at    int    // of what has not been taken yet, in data

	from   []byte // what has not been decompressed yet
	step   step   // nil: gzip
	bytes  bytes.Reader
	packed storage.Packed // the bytes
	pieces *bufio.Reader  // of those
	gzip   *gzip.Reader
	over   bool // nothing more will come
}

const (
	pieceSize = 1 << 20
	trusted   = 16 << 20 // a record is believed to be so long, to spare the copies
)

// begin turns to the next chunk. Memory that is left of the one before is used.
func (u *unpacker) begin(h *header, payload []byte) error {
	u.at, u.from, u.over = len(u.data), payload, false
	magic := framingMagic
	switch {
	case h.compressor == gzipped:
		u.step = nil
		u.bytes.Reset(payload)
		if u.gzip == nil {
			u.gzip, u.pieces = new(gzip.Reader), bufio.NewReaderSize(nil, 64<<10)
		}
		u.packed = u.stop.Packed(&u.bytes)
		u.pieces.Reset(&u.packed)
		if err := u.gzip.Reset(u.pieces); err != nil {
			return unexpected(err)
		}
		return nil
	case h.fluid:
		u.step, magic = oldStep, oldMagic
	default:
		u.step = framingStep
	}
	if !bytes.HasPrefix(payload, []byte(magic)) {
		return fmt.Errorf("expected %q, found %q", magic, payload[:min(len(payload), len(magic))])
	}
	u.from = payload[len(magic):]
	return nil
}

func unexpected(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errors.New("expected more compressed data, found its end")
	}
	return err
}

// left is how much is not decompressed yet, in compressed bytes.
func (u *unpacker) left() int {
	if u.step == nil {
		return u.bytes.Len()
	}
	return len(u.from)
}

// peek is what was decompressed and not taken yet: n bytes at least, unless the chunk ends.
func (u *unpacker) peek(n int) ([]byte, error) {
	for len(u.data)-u.at < n && !u.over {
		if err := u.stop.Look(); err != nil {
			return nil, err
		}
		if err := u.room(n); err != nil {
			return nil, err
		}
		if u.step == nil {
			got, err := u.gzip.Read(u.data[len(u.data):cap(u.data)])
			u.data = u.data[:len(u.data)+got]
			u.packed.Gave(got)
			if err != nil && err != io.EOF {
				return nil, unexpected(err)
			}
			u.over = err == io.EOF
		} else if len(u.from) == 0 {
			u.over = true
		} else {
			data, rest, err := u.step(u.data, u.from)
			if err != nil {
				return nil, err
			}
			u.data, u.from = data, rest
		}
	}
	return u.data[u.at:], nil
}

// room sees to it that a block fits, and takes memory for n bytes if they are likely to come.
func (u *unpacker) room(n int) error {
	if cap(u.data)-len(u.data) >= mostBlock {
		return nil
	}
	left := u.data[u.at:]
	b, err := u.pool.Get(max(pieceSize, min(n, max(2*len(left), trusted))+mostBlock))
	if err != nil {
		return err
	}
	data := b.Bytes()
	if err := u.stop.Copy(data, left); err != nil {
		b.Release()
		return err
	}
	data = data[:len(left):len(data)]
	u.close()
	u.block, u.data = b, data
	return nil
}

// skip takes n bytes that peek has shown.
func (u *unpacker) skip(n int) { u.at += n }

// hold is n references to the memory that peek's answer lies in.
func (u *unpacker) hold(n int) *memory.Buffer {
	u.block.Retain(n)
	return u.block
}

func (u *unpacker) close() {
	if u.block != nil {
		u.block.Release()
	}
	u.block, u.data, u.at = nil, nil, 0
}
