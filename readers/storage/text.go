package storage

import (
	"bytes"
	"io"
)

// The methods in this file are for formats of text, whose records end with a line.

// BeginText skips a byte order mark of UTF-8 at the beginning of the file. Text in UTF-16 is an error.
func (f *File) BeginText() error {
	b, err := f.Peek(3)
	if err != nil && len(b) < 3 {
		return err
	}
	if bytes.HasPrefix(b, []byte("\xef\xbb\xbf")) {
		f.Skip(3)
	} else if bytes.HasPrefix(b, []byte("\xff\xfe")) || bytes.HasPrefix(b, []byte("\xfe\xff")) {
		return f.Corrupt(0, -1, "expected text in UTF-8, found UTF-16")
	}
	return nil
}

// PeekText is Peek for a search for the end of a record, which has at most limit bytes. It polls, and returns at most as
// many bytes as may be searched until the next Poll, or n of them if that is more. end reports whether they are the rest
// of the file.
func (f *File) PeekText(n, limit int) (b []byte, end bool, err error) {
	b, err = f.Peek(n)
	end = err == nil && (f.IsMapped() || len(b) < n)
	if limit = min(max(n, PollEvery), limit); len(b) > limit {
		b, end = b[:limit], false
	}
	if err == nil {
		err = f.Poll()
	}
	return b, end, err
}

// SkipLine moves the position behind the next line end. The error is io.EOF if there is none. After ErrInterrupted, the
// next call goes on.
func (f *File) SkipLine() error {
	for {
		b, err := f.Peek(1)
		if err == nil {
			err = f.Poll()
		}
		if err != nil {
			return err
		}
		if len(b) == 0 {
			return io.EOF
		}
		b = b[:min(len(b), PollEvery)]
		if k := bytes.IndexByte(b, '\n'); k >= 0 {
			f.Skip(k + 1)
			return nil
		}
		f.Skip(len(b))
	}
}
