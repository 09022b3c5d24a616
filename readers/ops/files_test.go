package ops_test

import (
	"path/filepath"
	"testing"

	"github.com/pyfeed/pyfeed/readers/internal/readertest"
)

// Reads of files are recorded under the files' names, on the tracks of the threads that read them.
func TestFilesAreRecordedByName(t *testing.T) {
	scope := readertest.Scope(t)
	names, _ := readertest.WriteIDs(t, 300, 10)
	r := readertest.StartTrace(t)
	readertest.Drained(t, create(t, scope, "open_files", "files", nil, readertest.OpenIDs(names, `, "num_threads": 2`)))
	readertest.Drained(t, create(t, scope, "create_shuffle_reader", "shuffled", []string{"files"}, `{"buffer_size": 100}`))
	readertest.Drained(t, create(t, scope, "create_file_reader", "one", nil, readertest.OpenIDs(names[:1], "")))
	r.Stop()
	s := r.Summary()
	for _, name := range names {
		if o := readertest.Recorded(s, "open_files", "read", filepath.Base(name)); o.Count == 0 {
			t.Errorf("%s: found %+v", name, s.Operators)
		}
	}
	if o := readertest.Recorded(s, "callers", "read", filepath.Base(names[0])); o.Count == 0 {
		t.Errorf("a file that its caller reads: found %+v", s.Operators)
	}
	if o := readertest.Recorded(s, "shuffle", "read", "shuffle"); o.Count == 0 {
		t.Errorf("shuffle: found %+v", s.Operators)
	}
	if s.Runs != 0 {
		t.Errorf("expected no runs, found %d", s.Runs)
	}
}
