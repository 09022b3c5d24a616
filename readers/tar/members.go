package tar

import (
	"bytes"
	"fmt"
	"io"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// member is a regular one.
type member struct {
	name []byte // valid until the next Peek
	lead int    // bytes from the position, where its first header is, to its data
	size int    // of the data
}

// longest bounds what headers may say of the next member, in bytes: no name is longer.
const longest = 1 << 20

// header finds the next regular member. The position is at its first header, and all of its headers are visible. If
// there is none, err says why.
func (r *records) header(m *member) bool {
	if r.err != nil {
		return false
	}
again:
	if r.over.left > 0 && !r.rest() || r.blank.n > 0 && !r.zeros() {
		return false
	}
	b, err := r.f.Peek(blockSize)
	at := 0
	var x extra
	for {
		if len(b) < at+blockSize {
			r.short(b, at, err)
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
			r.damage(search, offset+blockSize, offset+124, "size of a member: expected octal digits, found %q", h[124:136])
			return false
		}
		t := h[156]
		switch t {
		case typePax, typeSolarisPax, typeGlobalPax, typeLongName, typeLongLink:
			if size > longest || at > 4*longest {
				r.damage(search, offset+blockSize, offset, "expected at most %d bytes about the next member, found %d", longest, size)
				return false
			}
			need := at + blockSize + padded(int(size)) + blockSize
			if len(b) < need {
				if b, err = r.f.Peek(need); len(b) < need {
					r.short(b, at+blockSize+padded(int(size)), err)
					return false
				}
			}
			at += blockSize
			if !r.about(&x, t, b[at:at+int(size)], offset) {
				return false
			}
			at += padded(int(size))
			continue
		case typeSparse, typeContinued:
			x.sparse = true
		}
		if x.sparse {
			r.damage(search, offset+blockSize, offset, "member %.200q: expected a whole file, found a sparse one or a part of one, "+
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

// about takes in what a header at an offset says of the next member.
func (r *records) about(x *extra, t byte, b []byte, offset int64) bool {
	switch t {
	case typeLongName:
		if !x.pathSet {
			r.nameBuf = append(r.nameBuf[:0], text(b)...)
			x.name, x.named = r.nameBuf, true
		}
	case typePax, typeSolarisPax:
		if at, expected := x.pax(b, &r.nameBuf); expected != "" {
			r.damage(search, offset+blockSize, offset+blockSize+int64(at), "pax header: expected %s", expected)
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
			r.damage(search, offset+blockSize, offset+blockSize+int64(at), "global pax header: expected %s", expected)
			return false
		}
	}
	return true
}

// badHeader is about a header that is not valid.
func (r *records) badHeader(h *block, offset int64) {
	what := fmt.Sprintf("checksum %q", text(h[148:156]))
	if want, ok := octal(h[148:156]); ok && !h.zero() {
		what = fmt.Sprintf("%d, not %d", h.sum(), want)
	} else if h.zero() {
		what = "zeros"
	}
	r.damage(search, offset+blockSize, offset, "expected the header of a member, with its checksum, found %s", what)
}

// short is about a file that ends, or cannot be read, where at least a block should be at a distance from the position.
func (r *records) short(b []byte, at int, err error) {
	if err != nil {
		r.err, r.behind = err, nowhere
		return
	}
	end := r.f.Offset() + int64(len(b))
	left := end % blockSize
	switch {
	case r.ended, r.toEnd && len(b) == 0 && left == 0:
		r.end()
	case len(b) > 0:
		r.damage(nowhere, 0, r.f.Offset()+int64(min(at, len(b))), "expected a header of %d bytes, found %d before the end of the file",
			blockSize, max(0, len(b)-at))
	case left > 0:
		r.damage(nowhere, 0, end, "expected %d bytes that fill a block up, found the end of the file", blockSize-left)
	default:
		r.damage(nowhere, 0, end, "expected a member, or the zeros that end an archive, found the end of the file: "+
			"it may have been cut, or never been closed (option end \"file\" reads such files)")
	}
}

// end is the end of the archive.
func (r *records) end() {
	if r.err = r.f.Intact(); r.err == nil {
		r.err = io.EOF
	}
	r.behind = nowhere
}

// blanks are blocks of zeros, one behind the other.
type blanks struct {
	begin int64 // offset of the first
	n     int
}

// zeros is what to do about a block of zeros at the position: the archive ends, unless it goes to the end of the
// file. True: look for a member again. Interrupted, it goes on where it was.
func (r *records) zeros() bool {
	defer func() {
		if !r.interrupted() {
			r.blank.n = 0
		}
	}()
	if r.blank.n == 0 {
		r.blank.begin = r.f.Offset()
	}
	for begin := r.blank.begin; ; r.blank.n++ {
		b, err := r.f.Peek(blockSize)
		if err == nil && r.lookDue(r.blank.n) {
			err = r.f.Look()
		}
		if err != nil {
			r.err, r.behind = err, nowhere
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
		case r.blank.n == 1 && !zero:
			r.damage(search, begin+blockSize, begin+blockSize, "expected a second block of zeros at the end of the archive, found %q...", b[:16])
			return false
		case r.blank.n > 1 && !zero && (*block)(b).valid():
			// What is behind the end is nobody's, but a member would be lost.
			r.damage(fresh, r.f.Offset(), begin, "expected the end of the archive after blocks of zeros, found a member behind them, "+
				"at byte %d (option end \"file\" reads on)", r.f.Offset())
			return false
		}
		r.f.Skip(len(b))
	}
}

// lookDue says of the n-th of many blocks whether the Interrupt is to be looked at. The windows of a mapped file move along.
func (r *records) lookDue(n int) bool {
	due := n%(storage.LookEvery/blockSize) == storage.LookEvery/blockSize-1
	if due && r.f.Mapped() {
		r.hold.settle()
		r.f.Hold(1).Release()
	}
	return due
}

// passing is a member that is gone over.
type passing struct {
	offset int64 // of its first header
	size   int
	left   int // bytes from the position to the next header
}

// pass goes over a member.
func (r *records) pass(m *member) bool {
	offset := r.f.Offset()
	if !r.room(m) {
		return false
	}
	r.f.Skip(m.lead)
	r.over = passing{offset, m.size, padded(m.size)}
	return r.rest()
}

// rest goes over what is left of a member. Interrupted, the next header goes on with it.
func (r *records) rest() bool {
	for r.over.left > 0 {
		b, err := r.f.Peek(1)
		if err != nil {
			r.err, r.behind = err, nowhere
			return false
		}
		if len(b) == 0 {
			m := r.over
			r.over = passing{}
			if missing := m.left - (padded(m.size) - m.size); missing > 0 {
				r.damage(nowhere, 0, m.offset, "expected a member of %d bytes, found %d before the end of the file", m.size, m.size-missing)
				return false
			}
			return true
		}
		n := min(len(b), r.over.left)
		r.f.Skip(n)
		r.over.left -= n
	}
	return true
}

// room says whether the file is long enough for a member, as far as that is known.
func (r *records) room(m *member) bool {
	left := r.f.Size() - r.f.Offset() - int64(m.lead)
	if r.f.Size() >= 0 && int64(m.size) > left {
		r.damage(nowhere, 0, r.f.Offset(), "expected a member of %d bytes, found %d before the end of the file", m.size, left)
		return false
	}
	return true
}
