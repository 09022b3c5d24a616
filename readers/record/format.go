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
	// Tag names it: open_files takes "tag:path" for a file whose name does not tell.
	Tag string
	// Suffixes are those of its files, each with its dot or hyphen. One more for compression may follow.
	Suffixes []string
	// Options is a new struct of what the format can be told, which encoding/json fills; nil: nothing.
	Options func() any
	// Open begins to read a file, at its first record.
	Open func(path string, c *Config) (Records, error)
	// Create begins to write a file; nil if the format is only read.
	Create func(path string, c *Config) (Writer, error)
	// Waits says that Read may wait for something else than a disk: no caller's thread reads it then, for it could
	// neither time out nor be cancelled.
	Waits bool
}

// Records are those of one open file, in order. One caller at a time.
type Records interface {
	// Read fills the front of out with the next instances: at least one, at most len(out), and preferably no
	// more than are in memory already. The tuples of out are there, empty, with as many slots as Config says.
	// At the end it answers 0 and io.EOF. Damage is a *pyfeed.Error of kind Corrupt with a Location, after the
	// instances before it have been answered; then Read MUST go on answering it until Resync.
	Read(out []*pyfeed.Tuple) (int, error)
	// Resync goes on behind the damage that Read answered, to where the next record is found whole; what lies
	// between is lost. io.EOF if there is none.
	Resync() error
	// Intact is an error if what was answered last may not be what is in the file, as when it has shrunk.
	Intact() error
	// Unchanged is an error if the file was written to since it was opened. It is asked for once, at the end.
	Unchanged() error
	// Close lets go of the file, not of the tuples.
	Close()
}

// Numbered are Records that can tell, after Resync, which record is the next. Of others that go on behind damage it is
// approximate.
type Numbered interface {
	// Number is that of the next record, and whether it is exact: false where it is not known how many records were lost.
	Number() (record int64, exact bool)
}

// BlockReader is implemented by Records some of whose instances are a [Block].
type BlockReader interface {
	// ReadBlock is the next instances, at least one and at most so many. nil: they do not lie so, or there is none, or
	// something is wrong with the next one, and Read has to be asked.
	ReadBlock(most int) *Block
}

// SingleRecord is implemented by Records of a file that may differ from its neighbours in the data of its only instance, and
// in nothing else.
type SingleRecord interface {
	// Signature is what the file has before the data of its only instance, which is the rest of it and is used as it lies
	// there, and what that looks like: a Slot without -1. Any file that begins so too, is as long and not compressed has
	// an instance that looks the same. The bytes stay as they are. None: it is no such file, or has not been read to
	// its end.
	Signature() (head []byte, instance pyfeed.Slot)
}

// Interruptible is implemented by Records whose Read may wait for something else than a disk.
type Interruptible interface {
	// Interrupt has a Read in progress, and any later one, return an error soon. Any goroutine.
	Interrupt()
}

// Ending is implemented by Records that know when there is nothing behind the last instance.
type Ending interface {
	// Ended reports that Read would return io.EOF, without any I/O. false: that is not known.
	Ended() bool
}

// A Writer writes tuples to a file of one format. One caller at a time.
type Writer interface {
	// Write adds a tuple, which stays the caller's. After an error only Abort is left.
	Write(t *pyfeed.Tuple) error
	// Close completes the file. Until then there is none of its name, or the old one.
	Close() error
	// Abort leaves nothing behind; after Close it does nothing.
	Abort()
}

// Config is what a file is opened or created with.
type Config struct {
	// Slots of an instance, and their names. nil for reading: what the file says itself; a format that has
	// no say answers an error of kind Invalid that asks for them.
	Slots []pyfeed.Slot
	Names []string
	// Inferred says that Slots are what the first file says itself, and not the caller.
	Inferred bool
	// Options is what Format.Options made, filled.
	Options any
	Storage storage.Options
	// Pool is where memory for what is read comes from; it outlives the Records and their tuples.
	Pool *memory.Pool
}

// Described are Records that know what their instances look like before reading any.
type Described interface {
	// Describe is the slots of an instance and their names. A dimension that differs from instance to
	// instance is -1.
	Describe() ([]pyfeed.Slot, []string, error)
}

var registry struct {
	mu       sync.RWMutex
	formats  map[string]*Format
	suffixes map[string]*Format
}

// Register adds a format. A tag or suffix that another has is refused.
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

// MustRegister is for the formats that come with the library.
func MustRegister(f Format) {
	if err := Register(f); err != nil {
		panic(err)
	}
}

// Tags are those of all formats, sorted.
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

// FormatDescription is what there is to know about a format.
type FormatDescription struct {
	Tag      string   `json:"tag"`
	Suffixes []string `json:"suffixes"`
	Writes   bool     `json:"writes"`
}

// Formats describes all formats, by tag.
func Formats() []FormatDescription {
	all := []FormatDescription{}
	for _, tag := range Tags() {
		f, err := FormatByTag(tag)
		if err != nil { // formats stay for good
			continue
		}
		all = append(all, FormatDescription{tag, append([]string{}, f.Suffixes...), f.Create != nil})
	}
	return all
}

// compressionSuffixes are the suffixes of compressed files.
var compressionSuffixes = []string{".gz", ".zst", ".sz", ".zlib"}

// CutTag takes the tag of a format, and a colon, from the front of a name; nil if there is none.
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

// FormatBySuffix is the format of the file's suffix, or nil.
func FormatBySuffix(path string) *Format {
	registry.mu.RLock()
	defer registry.mu.RUnlock()
	base := filepath.Base(path)
	for {
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

// UnknownFormat is the error about a file of which nothing says the format.
func UnknownFormat(name string) error {
	return pyfeed.Errorf(pyfeed.Invalid, "%s: expected a name with the prefix or suffix of a format; the formats are %s: "+
		"say \"tag:%s\", or give format", name, strings.Join(Tags(), ", "), name)
}

// FormatByTag is the format of that tag.
func FormatByTag(tag string) (*Format, error) {
	registry.mu.RLock()
	f := registry.formats[tag]
	registry.mu.RUnlock()
	if f == nil {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "format: expected one of %s, found %q", strings.Join(Tags(), ", "), tag)
	}
	return f, nil
}

// FileRef is a file and its format.
type FileRef struct {
	Path   string
	Format *Format
}

// TagsOf are the tags of the formats of files, each once.
func TagsOf(all []FileRef) (tags []string) {
	for _, f := range all {
		if !slices.Contains(tags, f.Format.Tag) {
			tags = append(tags, f.Format.Tag)
		}
	}
	return tags
}
