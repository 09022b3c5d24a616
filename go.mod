module github.com/pyfeed/pyfeed

go 1.26

require github.com/go-python/gopy v0.4.10
