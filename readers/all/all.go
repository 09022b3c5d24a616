// Package all registers every format that comes with the library.
package all

import (
	_ "github.com/pyfeed/pyfeed/readers/csv"
	_ "github.com/pyfeed/pyfeed/readers/idx"
	_ "github.com/pyfeed/pyfeed/readers/npy"
	_ "github.com/pyfeed/pyfeed/readers/npz"
	_ "github.com/pyfeed/pyfeed/readers/raw"
	_ "github.com/pyfeed/pyfeed/readers/recordio"
	_ "github.com/pyfeed/pyfeed/readers/tar"
	_ "github.com/pyfeed/pyfeed/readers/tfrecord"
)
