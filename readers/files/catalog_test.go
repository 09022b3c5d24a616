package files

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// Where an index cannot be written beside its file, the error says what to do.
func TestWhereToWriteAnIndex(t *testing.T) {
	const advice = ": index_dir names another directory"
	for _, test := range []struct {
		cause   error
		dir     string
		advises bool
	}{
		{syscall.EROFS, "", true},
		{syscall.EACCES, "", true},
		{syscall.EACCES, "indexes", false},
		{syscall.ENOSPC, "", false},
	} {
		err := suggestIndexDir(&pyfeed.Error{Kind: pyfeed.IO, Text: "create: failed", Cause: test.cause}, test.dir)
		if strings.HasSuffix(err.Error(), advice) != test.advises || !errors.Is(err, test.cause) {
			t.Errorf("%v, %q: found %v", test.cause, test.dir, err)
		}
	}
}
