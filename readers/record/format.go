package record

import (
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// A Format is a kind of file. Its functions are called from any goroutine, for many files at once.
type Format struct {
	// Tag names the format: "tag:path" selects it for a file whose name does not have one of the suffixes.
	Tag string
	// Suffixes are the suffixes of the format's files, each with its dot or hyphen. The number of a shard and a suffix
	// for compression may follow.
	Suffixes []string
	// Options returns a new struct of the format's options, which encoding/json fills; nil: the format has none. It may
	// implement OptionsChecker.
	Options func() any
	// Open opens a file for reading, at its first record.
	Open func(path string, c *Config) (Records, error)
	// Create creates a file for writing; nil if the format is read-only.
	Create func(path string, c *Config) (Writer, error)
	// Folder returns the files of a data set that a directory holds, in their order, if it has an index of the format's own.
	// If the format is given by the caller, Folder is also called with paths of files, which may be such an index. ok is
	// false for any other path. nil: the format has no such data sets.
	Folder func(path string) (files []string, ok bool, err error)
	// Defaults are values of options that mean the same as no value.
	Defaults map[string]any
	// Whole: Open reads the whole file, unless it is mapped.
	Whole bool
	// NamesChoose: the names of the slots decide which data of a file is read.
	NamesChoose bool
	// Waits: Read may wait for something other than a disk. Then only goroutines read such files. A caller's own thread
	// could neither time out nor be cancelled during that wait.
	Waits bool
}

// OptionsChecker is implemented by options that can be checked without a file.
type OptionsChecker interface {
	// Check returns the error for options that are wrong for any file. Such an error names no file.
	Check() error
}

// IndexOptions is implemented by options of which some do not decide where records are.
type IndexOptions interface {
	// ForIndex returns options of the same type that only decide where records are. The file is read with them, and
	// without slots, to make its index.
	ForIndex() any
}

// Records reads one open file, in order. One caller at a time uses it.
type Records interface {
	// Read fills the front of out with the next instances: at least one, at most len(out), and preferably no more than
	// are in memory already. The caller provides empty tuples in out, with as many slots as Config has. At the end of
	// the file Read returns 0 and io.EOF. For damage it first returns the instances before it, then a *pyfeed.Error of
	// kind Corrupt with a Location; Read MUST then return the same error until Resync is called.
	Read(out []*pyfeed.Tuple) (int, error)
	// Resync skips the damage that Read returned and continues at the next complete record. It returns io.EOF if there is
	// none.
	Resync() error
	// CheckTruncated returns an error if the data of the last Read may be wrong, because the file has become shorter or
	// a page of it cannot be read.
	CheckTruncated() error
	// CheckUnchanged returns an error if the file was written to since it was opened. It is called once, at the end of
	// the file.
	CheckUnchanged() error
	// Close closes the file. The tuples stay valid.
	Close()
}

// Numberer is implemented by Records that know the number of the next record after Resync. For other Records, the
// numbers after damage are approximate.
type Numberer interface {
	// Number returns the number of the next record, and whether it is exact. It is not exact if the damage hid how many
	// records were lost.
	Number() (record int64, exact bool)
}

// Position is where an instance begins in a file. What its fields mean is up to the format; equal files have equal
// positions, however they are stored and read.
type Position struct {
	// Offset is usually an offset in the decompressed data, in bytes, of the instance or of the chunk that has it. In
	// arrays it is the number of the instance.
	Offset int64
	// Inner tells more about the place, in formats that need more; else it is 0.
	Inner int64
}

// BadPosition is the error of Seek about a position that cannot be one of the file's.
func BadPosition(path string, p Position, expected string) error {
	e := pyfeed.Errorf(pyfeed.Corrupt, "position: expected %s, found %d and %d", expected, p.Offset, p.Inner)
	e.At = &pyfeed.Location{File: path, Offset: -1, Record: -1}
	return e
}

// A Seeker is Records that can go on where other Records of the same file were. Other Records go on by reading from the
// beginning and dropping.
type Seeker interface {
	// Position returns the position of the instance that the next Read or ReadBlock returns first; at the end of the
	// file, a position from which Read returns io.EOF. It reads nothing. Between an error of Read and Resync, and where
	// the position is not known, it returns false.
	Position() (Position, bool)
	// Seek goes to a position of these Records, or of other Records of a file with the same content. It may be called at
	// any time, also behind an error; for a compressed file, only before the first Read. number is the number of the
	// record there; exact is false if that is approximate. A position that cannot be one of the file's is an error of
	// kind Corrupt. After storage.ErrInterrupted, Seek is called again.
	Seek(p Position, number int64, exact bool) error
}

// Counted is implemented by Records that know, when the file is opened, how many instances it has if it is undamaged. The
// position of instance i has the Offset i, and the Inner 0.
type Counted interface {
	// Count returns the number of instances; negative: it is not known for this file. Count reads nothing.
	Count() int64
}

// Deflated is implemented by Records of files that may hold compressed data, although the file is not compressed as a whole.
type Deflated interface {
	// Deflated reports whether more than one instance has to be decompressed, and kept in memory, to read one.
	Deflated() bool
}

// BlockReader is implemented by Records some of whose instances are a [Block].
type BlockReader interface {
	// ReadBlock returns the next instances, at least one and at most limit. It returns nil if they are not in one
	// block, or if the next Read returns an error.
	ReadBlock(limit int) *Block
}

// LateReader is implemented by Records some of whose instances can be verified late: see [Block.VerifyLate].
type LateReader interface {
	// ReadLate is ReadBlock for instances that are verified late. It returns nil if the next one is not one of them.
	ReadLate(limit int) *Block
}

// SingleRecord is implemented by Records of a file with a single instance, when similar files differ in nothing but the
// data of that instance.
type SingleRecord interface {
	// Signature returns the bytes before the data of the only instance, and the instance's Slot, with all dimensions
	// known. The data is the rest of the file and is used without a copy. Every uncompressed file of the same size that
	// begins with these bytes has an instance with the same Slot. Signature returns no bytes if the file is not of that
	// kind, or has not been read to its end.
	Signature() (head []byte, instance pyfeed.Slot)
}

// Verifier is implemented by Records of files about which another file, such as the index of a data set, says more.
type Verifier interface {
	// Verify returns an error of kind Corrupt if the file is not the one that the other file describes. It is called at the
	// end of the file, when all of it is verified. After storage.ErrInterrupted, it is called again.
	Verify() error
}

// Interruptible is implemented by Records whose Read may wait for something other than a disk.
type Interruptible interface {
	// Interrupt makes a Read in progress, and any later one, return an error soon. Any goroutine may call it.
	Interrupt()
}

// EndReporter is implemented by Records that know whether they have returned the last instance.
type EndReporter interface {
	// AtEnd reports whether Read is known to return io.EOF next. It does no I/O; false may also mean that this is
	// unknown.
	AtEnd() bool
}

// A Writer writes tuples to a file of one format. One caller at a time.
type Writer interface {
	// Write adds a tuple, which the caller still owns. After an error, only Abort may be called.
	Write(t *pyfeed.Tuple) error
	// Close completes the file. Until then, no file of its name exists, or the previous one does.
	Close() error
	// SetNames gives the slots names before the first tuple is written. A format that stores no names ignores them. It is an
	// error of kind State after a tuple was written, and if the writer was created with slots or names.
	SetNames(names []string) error
	// Abort removes what was written; after Close it does nothing.
	Abort()
}

// Config has what a file is opened or created with.
type Config struct {
	// Slots of an instance, and their names. nil for reading: the file describes its slots. A format whose files do not
	// describe them returns an error of kind Invalid that asks for slots.
	Slots []pyfeed.Slot
	Names []string
	// Inferred reports whether Slots were taken from the first file, rather than given by the caller.
	Inferred bool
	// Options is the struct that Format.Options returned, filled in.
	Options any
	Storage storage.Options
	// Pool allocates the memory for the data that is read; it outlives the Records and their tuples.
	Pool *memory.Pool
}

// Describer is implemented by Records that know their instances' slots before they read any instance.
type Describer interface {
	// Describe returns the slots of an instance and their names. A dimension that differs between instances is -1.
	Describe() ([]pyfeed.Slot, []string, error)
}

var registry struct {
	mu       sync.RWMutex
	formats  map[string]*Format
	suffixes map[string]*Format
}

// Register adds a format. It returns an error if another format has its tag or one of its suffixes.
func Register(f Format) error {
	if f.Tag == "" || strings.ContainsAny(f.Tag, ":/\\*?[{") || f.Open == nil {
		return pyfeed.Errorf(pyfeed.Invalid, "register: expected a tag without any of :/\\*?[{ and a function that opens, found %q", f.Tag)
	}
	for _, s := range f.Suffixes {
		if len(s) < 2 || s[0] != '.' && s[0] != '-' || strings.ContainsAny(s, "/") {
			return pyfeed.Errorf(pyfeed.Invalid, "register: format %q: expected suffixes such as %q, found %q", f.Tag, "."+f.Tag, s)
		}
	}
	registry.mu.Lock()
	defer registry.mu.Unlock()
	if registry.formats[f.Tag] != nil {
		return pyfeed.Errorf(pyfeed.State, "register: there is a format %q already", f.Tag)
	}
	for _, s := range f.Suffixes {
		if other := registry.suffixes[s]; other != nil {
			return pyfeed.Errorf(pyfeed.State, "register: the suffix %s is that of format %q already", s, other.Tag)
		}
	}
	if registry.formats == nil {
		registry.formats, registry.suffixes = make(map[string]*Format), make(map[string]*Format)
	}
	registry.formats[f.Tag] = &f
	for _, s := range f.Suffixes {
		registry.suffixes[s] = &f
	}
	return nil
}

// MustRegister registers a format of the library; it panics on an error.
func MustRegister(f Format) {
	if err := Register(f); err != nil {
		panic(err)
	}
}

// FolderOf returns the files of a data set, and their format, if one of the formats with such data sets recognizes a
// directory or, if the format is given, a file. f is nil if none does.
func FolderOf(path string, given *Format, isDir bool) (files []string, f *Format, err error) {
	var all []*Format
	switch {
	case given != nil:
		all = append(all, given)
	case isDir:
		for _, tag := range Tags() {
			if f, err := FormatByTag(tag); err == nil {
				all = append(all, f)
			}
		}
	}
	for _, f := range all {
		if f.Folder == nil {
			continue
		}
		if files, ok, err := f.Folder(path); ok || err != nil {
			return files, f, err
		}
	}
	return nil, nil, nil
}

// Tags returns the tags of all formats, sorted.
func Tags() []string {
	registry.mu.RLock()
	defer registry.mu.RUnlock()
	tags := make([]string, 0, len(registry.formats))
	for tag := range registry.formats {
		tags = append(tags, tag)
	}
	sort.Strings(tags)
	return tags
}

// FormatDescription describes a format.
type FormatDescription struct {
	Tag      string   `json:"tag"`
	Suffixes []string `json:"suffixes"`
	Writes   bool     `json:"writes"`
}

// Formats describes all formats, sorted by tag.
func Formats() []FormatDescription {
	all := []FormatDescription{}
	for _, tag := range Tags() {
		f, err := FormatByTag(tag)
		if err != nil { // cannot happen: formats are never removed
			continue
		}
		all = append(all, FormatDescription{tag, append([]string{}, f.Suffixes...), f.Create != nil})
	}
	return all
}

// compressionSuffixes are the suffixes of compressed files.
var compressionSuffixes = []string{".gz", ".zst", ".sz", ".zlib"}

// CutTag splits a name of the form "tag:path". If it does not begin with the tag of a format, CutTag returns the name
// and nil.
func CutTag(name string) (path string, f *Format) {
	tag, rest, cut := strings.Cut(name, ":")
	if !cut {
		return name, nil
	}
	registry.mu.RLock()
	defer registry.mu.RUnlock()
	if f := registry.formats[tag]; f != nil {
		return rest, f
	}
	return name, nil
}

// FormatBySuffix returns the format that has the file's suffix, or nil. The number of a shard may follow the suffix.
func FormatBySuffix(path string) *Format {
	registry.mu.RLock()
	defer registry.mu.RUnlock()
	base := filepath.Base(path)
	for {
		base = storage.CutShardNumber(base)
		for i := 1; i < len(base); i++ { // the longest suffix first
			if base[i] != '.' && base[i] != '-' {
				continue
			}
			if f := registry.suffixes[base[i:]]; f != nil {
				return f
			}
		}
		ext := filepath.Ext(base)
		if !slices.Contains(compressionSuffixes, ext) {
			return nil
		}
		base = strings.TrimSuffix(base, ext)
	}
}

// UnknownFormat is the error for a file whose format neither its name nor the caller gives.
func UnknownFormat(name string) error {
	return pyfeed.Errorf(pyfeed.Invalid, "%s: expected a name with the prefix or suffix of a format; the formats are %s: "+
		"give format, or put the format before the name, such as \"tfrecord:%s\"", name, strings.Join(Tags(), ", "), name)
}

// FormatByTag returns the format with that tag.
func FormatByTag(tag string) (*Format, error) {
	registry.mu.RLock()
	f := registry.formats[tag]
	registry.mu.RUnlock()
	if f == nil {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "format: expected one of %s, found %q%s",
			strings.Join(Tags(), ", "), tag, Suggest(tag, slices.Values(Tags())))
	}
	return f, nil
}

// FileRef is the path of a file and its format.
type FileRef struct {
	Path   string
	Format *Format
}

// TagsOf returns the tags of the formats of files, each once.
func TagsOf(all []FileRef) (tags []string) {
	for _, f := range all {
		if !slices.Contains(tags, f.Format.Tag) {
			tags = append(tags, f.Format.Tag)
		}
	}
	return tags
}
