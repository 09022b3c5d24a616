// Package all registers every format that comes with the library.
//
// A new format needs, besides its folder and a line here:
//   - a row in the tables of tests/lint and of damage_test.go
//   - for Python, a function in python/pyfeed/_open.py, and its name in python/pyfeed/__init__.py and in
//     tests/python/test_public_names.py
//   - the types of options that are dicts, in _options.py and typing.py
//   - rows in the tables of tests/python (test_formats.py, test_files.py, test_faults.py, test_torn_files.py,
//     argument_table.py) and of tests/long/corruption.py
//   - its section in docs/formats.md, a row in docs/resume.md, and its function in docs/reference/python
package all

import (
	_ "github.com/pyfeed/pyfeed/readers/arrow"
	_ "github.com/pyfeed/pyfeed/readers/csv"
	_ "github.com/pyfeed/pyfeed/readers/idx"
	_ "github.com/pyfeed/pyfeed/readers/jsonl"
	_ "github.com/pyfeed/pyfeed/readers/mds"
	_ "github.com/pyfeed/pyfeed/readers/npy"
	_ "github.com/pyfeed/pyfeed/readers/npz"
	_ "github.com/pyfeed/pyfeed/readers/parquet"
	_ "github.com/pyfeed/pyfeed/readers/raw"
	_ "github.com/pyfeed/pyfeed/readers/recordio"
	_ "github.com/pyfeed/pyfeed/readers/tar"
	_ "github.com/pyfeed/pyfeed/readers/tfrecord"
	_ "github.com/pyfeed/pyfeed/readers/tokens"
)
