package files

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// OpenFile makes a reader of one file.
func OpenFile(ctx context.Context, o *Options) (readers.Reader, error) {
	if o.indexed() {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "create_file_reader: expected no index, found one of index, index_dir, shuffle_records and virtual_shards: open_files has them")
	}
	refs, s, err := prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	if len(refs) != 1 {
		s.close()
		return nil, pyfeed.Errorf(pyfeed.Invalid, "create_file_reader: expected 1 file, found %d: open_files reads many", len(refs))
	}
	if refs[0].Format.Waits || storage.IsPipe(refs[0].Path) {
		return newFilesReader(refs, s, nil, &Options{NumThreads: 1, Ordered: true, Interleave: 1}), nil
	}
	return newFileReader(refs[0], s), nil
}

// Open makes a reader that reads many files at a time. It searches for the files; if the options do not give slots, it
// reads the first file to infer them. It stops when ctx is done; with [wait.NonBlocking] it returns wait.ErrWouldBlock
// if that takes long.
func Open(ctx context.Context, o *Options) (readers.Reader, error) {
	refs, s, err := prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	var c *catalog
	if o.indexed() {
		if c, err = s.catalogOf(ctx, refs, o); err != nil {
			s.close()
			return nil, err
		}
	}
	if o.ShuffleRecords != nil || o.VirtualShards > 0 {
		r, err := newNumberedReader(c, s, o)
		if err != nil {
			c.close()
			s.close()
			return nil, err
		}
		return r, nil
	}
	return newFilesReader(refs, s, c, o), nil
}

// prepare finds the files and their slots. If the options do not give slots, it infers them from the first file.
func prepare(ctx context.Context, o *Options) ([]record.FileRef, *fileSet, error) {
	names, err := namesOf(o.Filenames)
	if err != nil {
		return nil, nil, err
	}
	refs, err := list(ctx, names, o.Format)
	if err != nil {
		return nil, nil, err
	}
	s := &fileSet{skip: o.OnCorrupt == "skip", verifyFirst: o.VerifyFirst, pool: memory.NewPool(memory.File),
		optionsText: optionsText(o.Options, nil)}
	if o.Storage.Compression != "auto" {
		s.compression = o.Storage.Compression
	}
	if o.VerifyFirst {
		err = checkReadableTwice(ctx, refs)
	}
	if err == nil {
		s.configs, err = s.configure(refs, o)
	}
	if err == nil {
		s.spec, err = s.infer(ctx, refs[0])
	}
	if err == nil {
		first := refs[0].Format
		s.slotsText = slotsText(s.configs[first.Tag], first.NamesChoose)
	}
	if err != nil {
		s.close()
		return nil, nil, err
	}
	return refs, s, nil
}

// configure makes a Config for each format of the files. If there are several formats, options maps tags to options.
func (s *fileSet) configure(refs []record.FileRef, o *Options) (map[string]*record.Config, error) {
	tags := record.TagsOf(refs)
	options := map[string]json.RawMessage{tags[0]: o.Options}
	if len(tags) > 1 {
		options = nil
		if err := record.DecodeAttributes("open_files: options of files of several formats, by tag", o.Options, &options); err != nil {
			return nil, err
		}
		for tag := range options {
			if !slices.Contains(tags, tag) {
				return nil, pyfeed.Errorf(pyfeed.Invalid, "options: expected those of formats %s by tag, found %q", strings.Join(tags, ", "), tag)
			}
		}
	}
	all := make(map[string]*record.Config)
	s.formatOptions = make(map[string]json.RawMessage)
	for _, ref := range refs {
		tag := ref.Format.Tag
		if all[tag] != nil {
			continue
		}
		c, err := configure(ref.Format, o.Slots, options[tag], o.Storage)
		if err != nil {
			return nil, err
		}
		c.Pool = s.pool
		all[tag] = &c
		s.formatOptions[tag] = options[tag]
	}
	return all, nil
}

// configure makes a Config from attributes.
func configure(format *record.Format, slots []record.SlotAttributes, options json.RawMessage, from storage.Options) (record.Config, error) {
	c := record.Config{Storage: from}
	err := from.Check()
	if err == nil && slots != nil {
		c.Slots, c.Names, err = record.ParseSlots(slots)
	}
	if err != nil {
		return c, err
	}
	if format.Options == nil {
		return c, record.DecodeAttributes(format.Tag, options, &struct{}{})
	}
	c.Options = format.Options()
	err = record.DecodeAttributes(format.Tag, options, c.Options)
	if o, can := c.Options.(record.OptionsChecker); can && err == nil {
		err = o.Check()
	}
	return c, err
}

// infer makes the Spec. If the options do not give slots, it opens the first file to infer them. A pipe can be read
// only once, so infer keeps it open for the reader. With [wait.NonBlocking], infer returns wait.ErrWouldBlock when that
// takes long.
func (s *fileSet) infer(ctx context.Context, first record.FileRef) (spec *pyfeed.Spec, err error) {
	config := s.configs[first.Format.Tag]
	if config.Slots == nil {
		c := *config
		pipe := storage.IsPipe(first.Path)
		if ctx == wait.NonBlocking && pipe {
			return nil, wait.ErrWouldBlock
		}
		stop := new(storage.Interrupt)
		c.Storage.Interrupt = stop
		if ctx == wait.NonBlocking {
			stop.SetLimit(new(timeBudget).expired)
		} else {
			defer context.AfterFunc(ctx, stop.Stop)()
		}
		defer func() {
			switch {
			case err != storage.ErrInterrupted:
			case ctx == wait.NonBlocking:
				err = wait.ErrWouldBlock
			default:
				err = context.Cause(ctx)
			}
		}()
		file := file{FileRef: first, fileSet: s} // for the location of damage
		records, err := first.Format.Open(first.Path, &c)
		if storage.IsPageFault(err) { // the readable pages may be enough
			c.Storage.IO = "read"
			records, err = first.Format.Open(first.Path, &c)
		}
		if err != nil {
			return nil, file.locate(err, -1)
		}
		kept := false
		defer func() {
			if !kept {
				records.Close()
			}
		}()
		d, can := records.(record.Describer)
		if !can {
			return nil, pyfeed.Errorf(pyfeed.Invalid, "%s: format %q does not say what its instances look like: give slots", first.Path, first.Format.Tag)
		}
		slots, names, err := d.Describe()
		for s.skip && isCorrupt(err) {
			if pipe { // a pipe is not read again, so the damage is noted now
				s.ledger.add(file.locate(err, -1).(*pyfeed.Error))
			}
			if behind := records.Resync(); behind != nil {
				if behind == storage.ErrInterrupted {
					err = behind
				}
				break
			}
			file.renumber(records)
			if slots, names, err = d.Describe(); isCorrupt(err) && stop.Poll() != nil {
				err = storage.ErrInterrupted
			}
		}
		if err != nil {
			return nil, file.locate(err, -1)
		}
		s.counts.add(first.Path, records)
		for i := range min(len(slots), len(names)) {
			slots[i].Name = names[i]
		}
		for _, c := range s.configs {
			c.Slots, c.Names, c.Inferred = slots, names, true
		}
		if kept = pipe; kept {
			s.opened = openedFile{first.Path, records, stop, file.number, file.approximate}
		}
	}
	return pyfeed.NewSpec(config.Slots)
}
