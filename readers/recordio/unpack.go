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

// unpacker decompresses chunks in pieces into memory of the Pool. Records are views of that memory.
//
// It decompresses in pieces because the decompressed size of a chunk is not known before: a gzip member of a megabyte
// may hold a gigabyte. So it allocates memory for one piece, or for a larger record as far as its data really arrives.
type unpacker struct {
	interrupt *storage.Interrupt
	pool      *memory.Pool
	block     *memory.Buffer
	data      []byte // the filled part of block
	at        int    // index in data of the first byte not taken yet

	from       []byte // bytes that were not decompressed yet
	step       step   // nil: gzip
	bytes      bytes.Reader
	compressed storage.CompressedInput // reads bytes
	pieces     *bufio.Reader           // reads compressed
	gzip       *gzip.Reader
	ended      bool // the chunk has no more data
}

const (
	pieceSize     = 1 << 20
	trustedLength = 16 << 20 // memory is allocated for a record of up to this size at once, to avoid copies
)

// begin starts the next chunk. It reuses the rest of the memory of the chunk before.
func (u *unpacker) begin(h *header, payload []byte) error {
	u.at, u.from, u.ended = len(u.data), payload, false
	magic := framingMagic
	switch {
	case h.compressor == gzipped:
		u.step = nil
		u.bytes.Reset(payload)
		if u.gzip == nil {
			u.gzip, u.pieces = new(gzip.Reader), bufio.NewReaderSize(nil, 64<<10)
		}
		u.compressed = u.interrupt.CompressedInput(&u.bytes)
		u.pieces.Reset(&u.compressed)
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

// left returns how many compressed bytes were not decompressed yet.
func (u *unpacker) left() int {
	if u.step == nil {
		return u.bytes.Len()
	}
	return len(u.from)
}

// peek returns the decompressed bytes that were not taken yet: at least n bytes, unless the chunk ends.
func (u *unpacker) peek(n int) ([]byte, error) {
	for len(u.data)-u.at < n && !u.ended {
		if err := u.interrupt.Poll(); err != nil {
			return nil, err
		}
		if err := u.reserve(n); err != nil {
			return nil, err
		}
		if u.step == nil {
			got, err := u.gzip.Read(u.data[len(u.data):cap(u.data)])
			u.data = u.data[:len(u.data)+got]
			u.compressed.Produced(got)
			if err != nil && err != io.EOF {
				return nil, unexpected(err)
			}
			u.ended = err == io.EOF
		} else if len(u.from) == 0 {
			u.ended = true
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

// reserve makes room for a block, or for n bytes if they are likely to arrive.
func (u *unpacker) reserve(n int) error {
	if cap(u.data)-len(u.data) >= maxBlock {
		return nil
	}
	left := u.data[u.at:]
	b, err := u.pool.Get(max(pieceSize, min(n, max(2*len(left), trustedLength))+maxBlock))
	if err != nil {
		return err
	}
	data := b.Bytes()
	if err := u.interrupt.Copy(data, left); err != nil {
		b.Release()
		return err
	}
	data = data[:len(left):len(data)]
	u.close()
	u.block, u.data = b, data
	return nil
}

// skip takes n bytes that peek has returned.
func (u *unpacker) skip(n int) { u.at += n }

// hold returns n references to the memory of the bytes that peek has returned.
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
