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

// Verification of a file before its first record is delivered. Most formats have no checksum of their own, and that of a
// compressed stream comes at its end: what was altered before it has been delivered by then. So the file is read twice, in the
// same way: the first time, the trial, it is only looked at.

// verifyChunk is how many records of a trial are held at a time.
const verifyChunk = record.ChunkSize

// statTwice is what the system says of a file that can be read twice.
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

// checkReadableTwice is an error if one of the files cannot be read twice. It looks for them as list does.
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

// verify makes sure of all of the file, once, if that is asked for. The error is what reading it would come to, and has the
// number of the first record. What is interrupted goes on when it is called again.
func (f *file) verify() error {
	if !f.verifyFirst || f.onTrial || f.verified {
		return nil
	}
	if f.trial == nil {
		var err error
		if f.before, err = statTwice(f.Path); err != nil {
			return err
		}
		f.setTrial(&file{FileRef: f.FileRef, fileSet: f.fileSet, onTrial: true})
	}
	f.trial.setLimit(f.tooLong)
	var c record.Chunk
	for {
		_, err := f.trial.next(&c, verifyChunk)
		c.Release()
		if err == io.EOF {
			err = f.trial.finish()
		}
		switch {
		case err == storage.ErrInterrupted:
			return err
		case err == io.EOF:
			f.setTrial(nil)
			f.verified = true
			return nil
		case err != nil:
			f.setTrial(nil)
			return f.unverified(err)
		}
		if err := f.trial.stop.Look(); err != nil {
			return err
		}
	}
}

// finish reads on where the format has stopped before the end, so that checksums there are verified. io.EOF: they are right.
func (f *file) finish() error {
	for _, s := range f.stored {
		err := s.Finish()
		if err != nil && f.stop.Stopped() { // whatever that looks like
			err = storage.ErrInterrupted
		}
		if err != nil {
			return f.locate(err, f.number)
		}
	}
	return io.EOF
}

// setTrial has an interrupt reach the trial, and ends the one before.
func (f *file) setTrial(trial *file) {
	f.mu.Lock()
	before := f.trial
	f.trial = trial
	if trial != nil && f.interrupted {
		trial.interrupt()
	}
	f.mu.Unlock()
	if before != nil {
		before.close()
	}
}

// unverified is the error of a trial. No record is delivered for it.
func (f *file) unverified(err error) error {
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

// unchanged is an error if the file is not the one that was verified.
func (f *file) unchanged() error {
	if !f.verified {
		return nil
	}
	now, err := statTwice(f.Path)
	if err != nil {
		return err
	}
	if os.SameFile(now, f.before) && now.Size() == f.before.Size() && now.ModTime().Equal(f.before.ModTime()) {
		return nil
	}
	return &pyfeed.Error{Kind: pyfeed.Corrupt, Slot: -1, At: &pyfeed.Location{File: f.Path, Offset: -1, Record: 0},
		Text: fmt.Sprintf("verify_first: expected the file that was verified, of %d bytes, found another or a later one, of %d",
			f.before.Size(), now.Size())}
}

// isUntrustworthy says whether damage is such that nothing of the file can be trusted: within what is compressed, of which the
// checksum is wrong, or its end is missing. To a trial it is not to be skipped.
func isUntrustworthy(err error) bool { return errors.Is(err, storage.ErrPacked) }
