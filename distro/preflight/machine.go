package preflight

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// effectiveCapabilities reads CapEff of this process.
func effectiveCapabilities() (uint64, error) {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	return parseCapabilities(string(data))
}

// parseCapabilities reads the line "CapEff:\t000001ffffffffff" of proc_pid_status(5).
func parseCapabilities(status string) (uint64, error) {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
			return strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		}
	}
	return 0, errors.New("no CapEff line in /proc/self/status")
}

// freeDisk is how many bytes root may still write on the file system that path is, or will be, on.
func freeDisk(path string) (uint64, error) {
	dir, err := nearestFolder(path)
	if err != nil {
		return 0, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return st.Bavail * uint64(st.Bsize), nil
}

// nearestFolder is path, or the nearest folder above it that exists.
func nearestFolder(path string) (string, error) {
	for dir := filepath.Clean(path); ; dir = filepath.Dir(dir) {
		_, err := os.Stat(dir)
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return "", err
		}
	}
}

// availableMemory is MemAvailable of proc_meminfo(5), in bytes.
func availableMemory() (uint64, error) {
	file, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return parseMemory(file)
}

// parseMemory reads the line "MemAvailable:   12345 kB".
func parseMemory(r io.Reader) (uint64, error) {
	scanner := bufio.NewScanner(r)
	for scanner.Scan() {
		if value, ok := strings.CutPrefix(scanner.Text(), "MemAvailable:"); ok {
			kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.Join(errors.New("no MemAvailable line in /proc/meminfo"), scanner.Err())
}

// tryListen takes the address and gives it back. IP_FREEBIND lets it try an address that the machine does not have yet, so
// that a process that listens on all addresses is found too.
func tryListen(ctx context.Context, network string, at netip.AddrPort) error {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var inner error
		err := raw.Control(func(fd uintptr) {
			inner = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_FREEBIND, 1)
		})
		return errors.Join(err, inner)
	}}
	if network == "udp" {
		conn, err := config.ListenPacket(ctx, network, at.String())
		if err != nil {
			return err
		}
		return conn.Close()
	}
	listener, err := config.Listen(ctx, network, at.String())
	if err != nil {
		return err
	}
	return listener.Close()
}

// portHolder is "NAME (process PID)" of who has a port, "" when that cannot be found out.
func portHolder(network string, port uint16) string {
	inodes := map[string]bool{}
	for _, table := range []string{network, network + "6"} {
		data, err := os.ReadFile("/proc/net/" + table)
		if err != nil {
			continue
		}
		maps.Copy(inodes, parseSockets(network, string(data), port))
	}
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return ""
	}
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil || !inodes[strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")] {
			continue
		}
		pid := strings.Split(link, "/")[2]
		name, err := os.ReadFile("/proc/" + pid + "/comm")
		if err != nil {
			continue
		}
		return fmt.Sprintf("%s (process %s)", strings.TrimSpace(string(name)), pid)
	}
	return ""
}

// parseSockets reads the inodes of the sockets bound to port from a table of /proc/net (proc_pid_net(5)): for TCP those
// that listen, for UDP all.
func parseSockets(network, table string, port uint16) map[string]bool {
	const tcpListen = "0A"
	inodes := map[string]bool{}
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 10 || network == "tcp" && fields[3] != tcpListen {
			continue
		}
		_, local, ok := strings.Cut(fields[1], ":")
		if n, err := strconv.ParseUint(local, 16, 16); ok && err == nil && n == uint64(port) {
			inodes[fields[9]] = true
		}
	}
	return inodes
}

// machineAddresses are the addresses of the machine's interfaces with their prefix lengths, by interface.
func machineAddresses() (map[string][]netip.Prefix, error) {
	links, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	out := map[string][]netip.Prefix{}
	for _, link := range links {
		addresses, err := link.Addrs()
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", link.Name, err)
		}
		for _, address := range addresses {
			if prefix, err := netip.ParsePrefix(address.String()); err == nil {
				out[link.Name] = append(out[link.Name], prefix)
			}
		}
	}
	return out, nil
}
