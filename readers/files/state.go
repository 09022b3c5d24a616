package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/pyfeed/pyfeed/internal/limits"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/anchor"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/state"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Anchors are the places from which a reader of files can go on: which files it had open, and where in them its consumer
// was. A reader takes one now and then, because its consumer may save a position that lies far behind it: the beginning of
// the block that a shuffle delivers, for example.

// fileAnchor is how far a reader of files was in its files.
type fileAnchor struct {
	turn    int // index in lanes of the file to take from next
	next    int // index, in the order of the pass, of the next file to be opened
	corrupt int64
	lanes   []laneAnchor
}

// laneAnchor is a place in an open file.
type laneAnchor struct {
	file  int // index in the order of the pass; ended: the file has ended, and the next one takes its place
	from  filePlace
	ahead int64     // instances between from and the next instance
	stamp fileStamp // of the file when it was opened
}

const ended = -1

// filePlace is a place in a file from which it can be read.
type filePlace struct {
	seeks       bool // else it is the beginning
	position    record.Position
	number      int64 // of the record there
	approximate bool  // number is only approximate
	corrupt     int64 // damaged records before
}

const (
	instancesPerLane = 16      // between two anchors, at least, so that anchors of many open files do not cost more
	maxAnchorLanes   = 1 << 14 // of all anchors
)

// anchors takes the anchors of a reader of files. The lock of the reader guards it.
type anchors struct {
	log   anchor.Log[fileAnchor]
	none  bool  // there is no anchor of the pass
	last  int64 // instances before the last one
	pass  uint64
	count int64 // instances that consumers took in this pass
	bytes int   // of those since the last anchor
}

func newAnchors(lanes int) anchors {
	return anchors{log: anchor.Log[fileAnchor]{Dense: min(max(maxAnchorLanes/max(lanes, 1)/40, 1), 16)}}
}

// due reports whether it is time for the next anchor.
func (a *anchors) due(lanes int) bool {
	since := a.count - a.last
	return since >= int64(max(limits.AnchorInstances, instancesPerLane*lanes)) || a.bytes >= limits.AnchorBytes || a.none
}

func (a *anchors) add(at fileAnchor) {
	a.log.Add(a.pass, a.count, at)
	a.none, a.last, a.bytes = false, a.count, 0
}

// took notes that consumers took instances.
func (a *anchors) took(n, bytes int) {
	a.count += int64(n)
	a.bytes += bytes
}

// begin notes that a pass begins, or goes on behind the given number of instances.
func (a *anchors) begin(pass uint64, count int64) {
	a.pass, a.count, a.last, a.bytes, a.none = pass, count, count, 0, true
}

// find returns the last anchor at or before a position, and the number of instances before it.
func (a *anchors) find(p readers.Position) (fileAnchor, int64, bool) {
	place, found, _ := a.log.Find(p.Pass, p.N)
	return place.Value, place.At, found
}

// ---- The state of a reader of files ---------------------------------------------------------

// filesState is the part of a reader of files in a state.
type filesState struct {
	Corrupt int64  `json:"corrupt"` // damaged records before
	Count   int64  `json:"count"`   // instances before
	Lanes   string `json:"lanes"`   // see laneAnchor.append; a semicolon between two
	Next    int    `json:"next"`
	Pass    uint64 `json:"pass"`
	Turn    int    `json:"turn"`
}

// appendState appends an anchor as JSON. Text is parsed faster than lists of numbers, by Python for example.
func (a *fileAnchor) appendState(b []byte, count int64, pass uint64) []byte {
	b = append(b, '{')
	if a.corrupt > 0 {
		b = strconv.AppendInt(append(b, `"corrupt":`...), a.corrupt, 10)
		b = append(b, ',')
	}
	b = strconv.AppendInt(append(b, `"count":`...), count, 10)
	b = append(b, `,"lanes":"`...)
	for i := range a.lanes {
		if i > 0 {
			b = append(b, ';')
		}
		b = a.lanes[i].append(b)
	}
	b = strconv.AppendInt(append(b, `","next":`...), int64(a.next), 10)
	if pass > 0 {
		b = strconv.AppendUint(append(b, `,"pass":`...), pass, 10)
	}
	if a.turn > 0 {
		b = strconv.AppendInt(append(b, `,"turn":`...), int64(a.turn), 10)
	}
	return append(b, '}')
}

// The fields of a lane in a state, with a space between two. A lane that has ended has only the first; one that begins at
// the beginning of its file ends before laneOffset. Zeros at the end are left out. The numbers have base 32, so that a
// state of eight lanes stays below 1 KB.
const laneBase = 32

const (
	laneFile = iota
	laneAhead
	laneSize
	laneTime // of the file's last change, in microseconds since 1970
	laneEnds // CRC of the file's first and last bytes
	laneOffset
	laneNumber
	laneInner
	laneApproximate
	laneCorrupt
	laneFields
)

func (l *laneAnchor) append(b []byte) []byte {
	fields := [laneFields]int64{int64(l.file), l.ahead, l.stamp.size, l.stamp.changed, int64(l.stamp.ends),
		l.from.position.Offset, l.from.number, l.from.position.Inner, 0, l.from.corrupt}
	if l.from.approximate {
		fields[laneApproximate] = 1
	}
	n := laneOffset
	if l.from.seeks {
		for n = laneFields; n > laneOffset+1 && fields[n-1] == 0; n-- {
		}
	}
	if l.file == ended {
		n = laneAhead
	}
	for i, f := range fields[:n] {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(b, f, laneBase)
	}
	return b
}

func parseLane(text string, files int) (l laneAnchor, err error) {
	var fields [laneFields]int64
	n := 0
	for word := range strings.SplitSeq(text, " ") {
		if n < laneFields && err == nil {
			fields[n], err = strconv.ParseInt(word, laneBase, 64)
		}
		n++
	}
	switch {
	case err == nil && n == laneAhead && fields[laneFile] == ended:
		return laneAnchor{file: ended}, nil
	case err != nil, n < laneOffset, n > laneFields, fields[laneFile] < 0, fields[laneFile] >= int64(files), fields[laneAhead] < 0:
		return l, pyfeed.Errorf(pyfeed.Invalid, "state: open_files: expected a position in one of %d files, found %q", files, text)
	}
	l = laneAnchor{file: int(fields[laneFile]), ahead: fields[laneAhead],
		stamp: fileStamp{size: fields[laneSize], changed: fields[laneTime], ends: uint32(fields[laneEnds])}}
	if n > laneOffset {
		l.from = filePlace{seeks: true, position: record.Position{Offset: fields[laneOffset], Inner: fields[laneInner]},
			number: fields[laneNumber], approximate: fields[laneApproximate] != 0, corrupt: fields[laneCorrupt]}
	}
	return l, nil
}

// parse checks the state of a reader of so many files and lanes, and returns its anchor.
func (s *filesState) parse(files, width int) (fileAnchor, error) {
	a := fileAnchor{turn: s.Turn, next: s.Next, corrupt: s.Corrupt}
	if s.Lanes != "" {
		for text := range strings.SplitSeq(s.Lanes, ";") {
			l, err := parseLane(text, files)
			if err != nil {
				return a, err
			}
			a.lanes = append(a.lanes, l)
		}
	}
	if s.Count < 0 || s.Next < 0 || s.Next > files || len(a.lanes) > width || s.Turn < 0 || s.Turn > 0 && s.Turn >= len(a.lanes) {
		return a, pyfeed.Errorf(pyfeed.Invalid, "state: open_files: expected at most %d open files of %d, found %d, turn %d, next %d",
			width, files, len(a.lanes), s.Turn, s.Next)
	}
	return a, nil
}

// ---- Whether files are those of the state ---------------------------------------------------

// fileStamp tells whether a file has changed.
type fileStamp struct {
	size, changed int64  // in bytes; in microseconds since 1970
	ends          uint32 // CRC-32C of the first and last stampEnd bytes; 0: not read
}

// stampEnd is how many bytes at each end of a file its stamp covers.
const stampEnd = 4 << 10

// stampOf reads the stamp of a file.
func stampOf(path string) (s fileStamp, err error) {
	f, err := os.Open(path)
	if err != nil {
		return s, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return s, err
	}
	s.size, s.changed = info.Size(), info.ModTime().UnixMicro()
	var end [stampEnd]byte
	for _, at := range [2]int64{0, max(s.size-stampEnd, 0)} {
		n, err := f.ReadAt(end[:], at)
		if err != nil && err != io.EOF {
			return s, err
		}
		s.ends = crc32.Update(s.ends, castagnoli, end[:n])
	}
	return s, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checkStamp returns an error if a file has changed since its stamp was read.
func checkStamp(path string, saved fileStamp) error {
	now, err := stampOf(path)
	var failed *os.PathError
	if errors.As(err, &failed) {
		err = failed.Err
	}
	location := &pyfeed.Location{File: path, Offset: -1, Record: -1}
	if err != nil {
		return &pyfeed.Error{Kind: pyfeed.IO, Slot: -1, At: location, Text: "the state was saved in the middle of this file: " + err.Error(), Cause: err}
	}
	if now == saved {
		return nil
	}
	text := fmt.Sprintf("%d bytes, found %d", saved.size, now.size)
	switch {
	case now.size != saved.size:
	case now.ends != saved.ends && saved.ends != 0: // 0: the file had changed when the state was saved
		text = "the same first and last bytes, found others"
	default:
		text = fmt.Sprintf("a last change at %d µs, found %d", saved.changed, now.changed)
	}
	return &pyfeed.Error{Kind: pyfeed.State, Slot: -1, At: location, Text: "the file has changed since the state was saved: expected " + text +
		" (strict=False goes on nevertheless)"}
}

// identity has what tells whether two lists have the same files: hashes of their names below the directory that all files
// have in common, so that they may be mounted elsewhere.
type identity struct {
	ordered, set state.Hash
}

func identityOf(refs []record.FileRef) identity {
	common := filepath.Dir(refs[0].Path)
	for _, ref := range refs[1:] {
		for dir := filepath.Dir(ref.Path); common != "." && common != "/" && dir != common && !strings.HasPrefix(dir, common+"/"); {
			common = filepath.Dir(common)
		}
	}
	names := make([]string, len(refs))
	for i, ref := range refs {
		name, err := filepath.Rel(common, ref.Path)
		if err != nil { // one path is absolute, another is not
			name = ref.Path
		}
		names[i] = ref.Format.Tag + ":" + name
	}
	ordered := state.HashOf(names...)
	slices.Sort(names)
	return identity{ordered, state.HashOf(names...)}
}

// optionsText describes the options of a format that were given and are not defaults: equal options have equal texts,
// whatever program has written them.
func optionsText(options json.RawMessage, defaults map[string]any) any {
	var given map[string]any
	d := json.NewDecoder(bytes.NewReader(options))
	d.UseNumber()
	if d.Decode(&given) != nil { // none, or no object, which the format refuses
		return ""
	}
	maps.DeleteFunc(given, func(name string, value any) bool { return value == nil || value == defaults[name] })
	if len(given) == 0 {
		return ""
	}
	text, _ := json.Marshal(given) // cannot fail: it was JSON
	return state.Text(string(text))
}

// slotsText describes the slots of files, with their names only if those choose the data.
func slotsText(c *record.Config, names bool) any {
	texts := make([]string, len(c.Slots))
	for i, slot := range c.Slots {
		if texts[i] = slot.String(); names && i < len(c.Names) {
			texts[i] = c.Names[i] + " " + texts[i]
		}
	}
	return state.Text(strings.Join(texts, ";"))
}

// stampCache makes states of anchors, and remembers the stamps of the files in the last one.
type stampCache struct {
	mu     sync.Mutex
	stamps map[string]fileStamp
	opened map[string]bool // files that were opened ahead, and can be read again

	last   []byte // the last state; nil: none
	lastOf savedAnchor
}

// savedAnchor tells which anchor a state is of.
type savedAnchor struct {
	pass   uint64
	count  int64
	opened int
}

// forget is called when the reader goes to another place.
func (c *stampCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stamps, c.opened, c.last = nil, nil, nil
}

// state returns the state of an anchor. It returns an error if a file cannot be read again: one of the anchor, or one of
// those opened since, whose indexes are less than opened.
func (c *stampCache) state(a fileAnchor, count int64, refs []record.FileRef, pass uint64, opened int) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := savedAnchor{pass, count, opened}
	if c.last != nil && c.lastOf == of { // true for most states
		return c.last, nil
	}
	stamps, ahead := make(map[string]fileStamp, len(a.lanes)), make(map[string]bool)
	a.lanes = slices.Clone(a.lanes)
	for i := range a.lanes {
		l := &a.lanes[i]
		if l.file == ended {
			continue
		}
		path := refs[l.file].Path
		stamp, known := c.stamps[path]
		if !known {
			if storage.IsPipe(path) {
				return nil, errPipe(path)
			}
			stamp, _ = stampOf(path) // if the file is gone, Restore says so
		}
		stamps[path] = stamp
		if at := l.stamp; at != (fileStamp{}) && (at.size != stamp.size || at.changed != stamp.changed) {
			stamp = at // the file is another one now, which Restore says
		}
		l.stamp = stamp
	}
	for _, ref := range refs[a.next:max(opened, a.next)] {
		if !c.opened[ref.Path] && storage.IsPipe(ref.Path) {
			return nil, errPipe(ref.Path)
		}
		ahead[ref.Path] = true
	}
	c.stamps, c.opened = stamps, ahead
	c.last, c.lastOf = a.appendState(make([]byte, 0, 1024), count, pass), of
	return c.last, nil
}

func errPipe(path string) error {
	return pyfeed.Errorf(pyfeed.State, "%s: expected files that can be read again, found a FIFO: its position cannot be saved", path)
}

// checkState is CheckState of a reader of so many files and lanes.
func checkState(kind string, at []byte, strict bool, width, files int, refsOf func(pass uint64) []record.FileRef) error {
	if at == nil {
		return nil
	}
	var is filesState
	if err := readers.DecodeAt(kind, at, &is); err != nil {
		return err
	}
	a, err := is.parse(files, width)
	if err != nil || !strict {
		return err
	}
	return a.checkLanes(refsOf(is.Pass))
}

// restoreState returns the anchor of a state, and the number of instances before it; nil: the pass begins at the first
// file.
func restoreState(p readers.Position, s *readers.Restorer, width, files int) (*fileAnchor, int64, error) {
	var is filesState
	if there, err := s.At(&is); err != nil || !there {
		return nil, 0, err
	}
	a, err := is.parse(files, width)
	if err != nil {
		return nil, 0, err
	}
	if is.Count > p.N || is.Pass != p.Pass {
		// Another option above, which the caller has accepted, has led to an earlier position.
		return nil, 0, nil
	}
	return &a, is.Count, nil
}

// corruptBefore returns the number of damaged records in files that are not open.
func (a *fileAnchor) corruptBefore() int64 {
	n := a.corrupt
	for _, l := range a.lanes {
		n -= l.from.corrupt
	}
	return n
}

// checkLanes returns an error if the files of an anchor are not what they were.
func (a *fileAnchor) checkLanes(refs []record.FileRef) error {
	for _, l := range a.lanes {
		if l.file == ended {
			continue
		}
		if err := checkStamp(refs[l.file].Path, l.stamp); err != nil {
			return err
		}
	}
	return nil
}

// options are what decides the order of the instances of these files.
func (s *fileSet) options(refs []record.FileRef) []state.Option {
	s.identified.Do(func() { s.identity = identityOf(refs) })
	return []state.Option{
		{Name: "compression", Value: s.compression, Optional: true},
		{Name: "file_names", Value: s.identity.set, Optional: true},
		{Name: "file_order", Value: s.identity.ordered, Optional: true},
		{Name: "format_options", Value: s.optionsText, Optional: true},
		{Name: "num_files", Value: len(refs), Optional: true},
		{Name: "skip_corrupt", Value: s.skip, Optional: true},
		{Name: "slots", Value: s.slotsText, Optional: true},
		{Name: "verify_first", Value: s.skip && s.verifyFirst, Optional: true}, // with skip, it decides what is skipped
	}
}
