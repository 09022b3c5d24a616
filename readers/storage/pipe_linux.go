package storage

import (
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// pipe reads a FIFO. An ordinary open of a FIFO blocks until a writer opens it; pipe opens without blocking and waits for
// the writer in its first read, in Go's poller, where an Interrupt can end the wait.
type pipe struct {
	file *os.File
	conn syscall.RawConn
}

func newPipe(file *os.File) (*pipe, error) {
	conn, err := file.SyscallConn()
	return &pipe{file, conn}, err
}

// IsPipe reports whether a file is a FIFO, whose reads wait for a writer and deliver the data only once.
func IsPipe(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&fs.ModeNamedPipe != 0
}

func (p *pipe) Read(b []byte) (n int, err error) {
	if len(b) == 0 {
		return 0, nil
	}
	waited := p.conn.Read(func(fd uintptr) bool {
		n, err = readPipe(int(fd), b)
		return err != unix.EAGAIN
	})
	if waited != nil {
		n, err = 0, waited
	}
	switch {
	case err != nil:
		return 0, &fs.PathError{Op: "read", Path: p.file.Name(), Err: err}
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// readPipe returns EAGAIN, not the end of the file, as long as no writer has opened the FIFO.
func readPipe(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Read(fd, b)
		if n > 0 || err != nil && err != unix.EINTR {
			return max(n, 0), err
		}
		if err == unix.EINTR {
			continue
		}
		// POLLHUP means that a writer has opened and closed the FIFO since this process opened it.
		ask := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err = unix.Poll(ask, 0); err != nil && err != unix.EINTR {
			return 0, err
		}
		switch {
		case err != nil, ask[0].Revents&unix.POLLIN != 0: // a writer has written since
		case ask[0].Revents&unix.POLLHUP != 0:
			return 0, nil
		default:
			return 0, unix.EAGAIN
		}
	}
}

func (p *pipe) Seek(offset int64, whence int) (int64, error) { return p.file.Seek(offset, whence) }
