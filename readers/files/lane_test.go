package files

import (
	"io"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// A thread may read for a lane that has room, that no thread reads for, and that has not ended.
func TestALaneWantsToBeRead(t *testing.T) {
	full := make([]*record.Chunk, laneChunks)
	for i, c := range []struct {
		lane  *lane
		wants bool
	}{
		{&lane{}, true}, {&lane{busy: true}, false}, {&lane{end: io.EOF}, false}, {&lane{chunks: full}, false}, {&lane{chunks: full[1:]}, true},
	} {
		if c.lane.hasRoom() != c.wants {
			t.Errorf("%d: expected %v", i, c.wants)
		}
	}
}

// A lane that is set again is like a new one.
func TestALaneIsUsedAgain(t *testing.T) {
	refs := []record.FileRef{{Path: "a"}, {Path: "b"}}
	l := &lane{busy: true, end: io.EOF, standsBy: true, bytes: 5}
	l.set(refs, &fileSignature{size: 100}, nil)
	if l.numFiles() != 2 || l.bytes != 200 || l.busy || l.end != nil || l.standsBy {
		t.Errorf("a group: found %+v", l)
	}
	l.set(refs[:1], nil, nil)
	if l.numFiles() != 1 || l.bytes != 0 || l.group != nil || l.file.Path != "a" {
		t.Errorf("a file: found %+v", l)
	}
	chunk := new(record.Chunk)
	chunk.Add(pyfeed.NewTuple(1))
	l.chunks, l.starts = append(l.chunks, chunk, new(record.Chunk)), make([]chunkStart, 2)
	if n := l.numInstances(); n != 1 {
		t.Errorf("expected 1 instance, found %d", n)
	}
	if first := l.dropFirst(); first != chunk || len(l.chunks) != 1 {
		t.Errorf("found %d chunks after the first", len(l.chunks))
	}
	chunk.Release()
	l.close()
}
