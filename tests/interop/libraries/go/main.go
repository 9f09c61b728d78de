// The Go module cloudsoda/go-smb2, told what to do line by line (tests/interop/libraries.py).
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cloudsoda/go-smb2"
)

var (
	session *smb2.Session
	share   *smb2.Share
)

func connect(port, name, user, password string) error {
	conn, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		return err
	}
	dialer := &smb2.Dialer{Initiator: &smb2.NTLMInitiator{User: user, Password: password}}
	if session, err = dialer.DialConn(context.Background(), conn, "127.0.0.1:"+port); err != nil {
		return err
	}
	share, err = session.Mount(name)
	return err
}

func write(name, local string, flags int) error {
	from, err := os.Open(local)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := share.OpenFile(name, flags, 0o644)
	if err != nil {
		return err
	}
	if _, err = io.Copy(to, from); err != nil {
		to.Close()
		return err
	}
	return to.Close()
}

func read(name, local string) error {
	data, err := share.ReadFile(name)
	if err != nil {
		return err
	}
	return os.WriteFile(local, data, 0o600)
}

func list(name, pattern string) (string, error) {
	var names []string
	if pattern == "*" {
		entries, err := share.ReadDir(name)
		if err != nil {
			return "", err
		}
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
	} else {
		found, err := share.Glob(name + `\` + pattern)
		if err != nil {
			return "", err
		}
		for _, path := range found {
			names = append(names, path[strings.LastIndex(path, `\`)+1:])
		}
	}
	return strings.Join(names, "\t"), nil
}

func act(part []string) (string, error) {
	switch part[0] {
	case "connect":
		return "", connect(part[1], part[2], part[3], part[4])
	case "shares":
		names, err := session.ListSharenames()
		return strings.Join(names, "\t"), err
	case "mkdir":
		return "", share.Mkdir(part[1], 0o755)
	case "put":
		return "", write(part[1], part[2], os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	case "append":
		return "", write(part[1], part[2], os.O_WRONLY|os.O_APPEND)
	case "get":
		return "", read(part[1], part[2])
	case "delete", "rmdir":
		return "", share.Remove(part[1])
	case "rename":
		return "", share.Rename(part[1], part[2])
	case "list":
		return list(part[1], part[2])
	case "stat":
		info, err := share.Stat(part[1])
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%d\t%d", info.Size(), info.ModTime().Unix()), nil
	case "settime":
		seconds, err := strconv.ParseInt(part[2], 10, 64)
		if err != nil {
			return "", err
		}
		when := time.Unix(seconds, 0)
		return "", share.Chtimes(part[1], when, when)
	case "truncate":
		size, err := strconv.ParseInt(part[2], 10, 64)
		if err != nil {
			return "", err
		}
		return "", share.Truncate(part[1], size)
	}
	return "absent", nil
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		said, err := act(strings.Split(lines.Text(), "\t"))
		switch {
		case err != nil:
			fmt.Println("error\t" + strings.ReplaceAll(err.Error(), "\n", " "))
		case said == "absent":
			fmt.Println(said)
		default:
			fmt.Println("ok\t" + said)
		}
	}
}
