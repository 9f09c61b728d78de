module interop

go 1.20

// The last version that Debian 12's Go builds.
require github.com/cloudsoda/go-smb2 v0.0.0-20231124195312-f3ec8ae2c891

require (
	github.com/geoffgarside/ber v1.1.0 // indirect
	golang.org/x/crypto v0.9.0 // indirect
)
