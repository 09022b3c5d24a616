package all_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/readers/files"
)

// The format arrow knows the files of a folder of Hugging Face; another format that is given reads all files.
func TestFolderOfADataset(t *testing.T) {
	const dir = "../arrow/testdata/dataset"
	want := []string{"arrow:" + dir + "/data-00000-of-00002.arrow", "arrow:" + dir + "/data-00001-of-00002.arrow"}
	for _, format := range []string{"", "arrow"} {
		found, err := files.ListFiles(context.Background(), []string{dir}, format)
		if err != nil || !slices.Equal(found, want) {
			t.Errorf("format %q: expected %v, found %v, %v", format, want, found, err)
		}
	}
	found, err := files.ListFiles(context.Background(), []string{dir}, "raw")
	if err != nil || len(found) != 4 {
		t.Errorf("format raw: expected 4 files, found %v, %v", found, err)
	}
	found, err = files.ListFiles(context.Background(), []string{"raw:" + dir}, "")
	if err != nil || len(found) != 4 || !strings.HasPrefix(found[0], "raw:") {
		t.Errorf("with the tag raw: expected 4 files, found %v, %v", found, err)
	}
}
