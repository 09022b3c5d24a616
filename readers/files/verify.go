package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Verification of a file before its first record is delivered. Most formats have no checksum, and the checksum of a
// compressed stream comes at its end, after altered data was delivered. So the file is read twice, in the same way. The
// first read, the verification, delivers nothing.

// verifyChunk is how many records of a verification are held at a time.
const verifyChunk = record.ChunkSize

// statTwice returns the stat of a file, or an error if it cannot be read twice.
func statTwice(path string) (os.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	if found := storage.RegularFile(info.Mode()); found != nil {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "verify_first: %s: %v, which cannot be read twice", path, found)
	}
	return info, nil
}

// checkReadableTwice returns an error if one of the files cannot be read twice. It polls ctx like list.
func checkReadableTwice(ctx context.Context, refs []record.FileRef) error {
	l := &lister{ctx: ctx}
	for _, s := range refs {
		if err := l.poll(); err != nil {
			return err
		}
		if _, err := statTwice(s.Path); err != nil {
			return err
		}
	}
	return nil
}

// verify reads the whole file once before its first record is delivered, if verify_first is set. It returns the error
// that reading would meet, with the number of the first record. After ErrInterrupted, the next call goes on with the
// verification.
func (f *file) verify() error {
	if !f.verifyFirst || f.verifying || f.verified {
		return nil
	}
	if f.verification == nil {
		var err error
		if f.infoBeforeVerify, err = statTwice(f.Path); err != nil {
			return err
		}
		f.setVerification(&file{FileRef: f.FileRef, fileSet: f.fileSet, verifying: true})
	}
	f.verification.setLimit(f.overTime)
	var c record.Chunk
	for {
		_, err := f.verification.next(&c, verifyChunk)
		c.Release()
		if err == io.EOF {
			err = f.verification.finish()
		}
		switch {
		case err == storage.ErrInterrupted:
			return err
		case err == io.EOF:
			f.setVerification(nil)
			f.verified = true
			return nil
		case err != nil:
			f.setVerification(nil)
			return f.verificationError(err)
		}
		if err := f.verification.stop.Poll(); err != nil {
			return err
		}
	}
}

// finish reads the rest of the file after the format has stopped, to verify the checksums there. io.EOF: they are
// correct.
func (f *file) finish() error {
	for _, s := range f.stored {
		err := s.Finish()
		if err != nil && f.stop.Stopped() { // a stopped read may return any error
			err = storage.ErrInterrupted
		}
		if err != nil {
			return f.locate(err, f.number)
		}
	}
	if v, can := f.records.(record.Verifier); can {
		if err := v.Verify(); err != nil {
			return f.locate(err, f.number)
		}
	}
	return io.EOF
}

// setVerification replaces the verification and closes the previous one. interrupt then interrupts the new one.
func (f *file) setVerification(verification *file) {
	f.mu.Lock()
	before := f.verification
	f.verification = verification
	if verification != nil && f.interrupted {
		verification.interrupt()
	}
	f.mu.Unlock()
	if before != nil {
		before.close()
	}
}

// verificationError converts an error of the verification to that of the file, of which no record is delivered.
func (f *file) verificationError(err error) error {
	e, is := err.(*pyfeed.Error)
	if !is || e.Kind != pyfeed.Corrupt {
		return err
	}
	none, at := *e, *e.At
	none.Text = fmt.Sprintf("%s (verify_first found it at record %d, before any was delivered)", e.Text, at.Record)
	at.Record, at.Approximate = 0, false
	none.At = &at
	return &none
}

// unchanged returns an error if the file is not the one that was verified.
func (f *file) unchanged() error {
	if !f.verified {
		return nil
	}
	now, err := statTwice(f.Path)
	if err != nil {
		return err
	}
	if os.SameFile(now, f.infoBeforeVerify) && now.Size() == f.infoBeforeVerify.Size() && now.ModTime().Equal(f.infoBeforeVerify.ModTime()) {
		return nil
	}
	return &pyfeed.Error{Kind: pyfeed.Corrupt, Slot: -1, At: &pyfeed.Location{File: f.Path, Offset: -1, Record: 0},
		Text: fmt.Sprintf("verify_first: expected the file that was verified, of %d bytes, found another or a later one, of %d",
			f.infoBeforeVerify.Size(), now.Size())}
}

// isUntrustworthy reports whether damage makes the whole file untrustworthy: in compressed data whose checksum is wrong
// or whose end is missing. A verification does not skip such damage.
func isUntrustworthy(err error) bool { return errors.Is(err, storage.ErrBadCompression) }
