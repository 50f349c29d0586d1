package commands

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/mnicloud/mnicloud/distro/cloud"
	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/parts"
	"github.com/mnicloud/mnicloud/network/inspect"
)

// netnsDir has the named network namespaces.
const netnsDir = "/run/netns"

// Members finds the members of an instance's network on this machine: whatever has pinned maps.
func Members(name string) ([]inspect.Member, error) {
	c, err := cloud.Find(name)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(c.Instance.PinDir())
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil, fmt.Errorf("cloud %q is not running: `mni up%s` starts it", name, cloud.Flag(name))
	}
	if err != nil {
		return nil, err
	}
	var members []inspect.Member
	for _, entry := range entries {
		m := inspect.Member{Name: entry.Name(), PinPath: filepath.Join(c.Instance.PinDir(), entry.Name())}
		if m.Name != parts.MachineMember {
			m.Netns = filepath.Join(netnsDir, nodeOf(c.Instance, m.Name).Netns())
		}
		members = append(members, m)
	}
	return members, nil
}

// nodeOf is the node of a name.
func nodeOf(i instance.Instance, name string) instance.Node {
	index, _ := strconv.Atoi(name[strings.LastIndex(name, "-")+1:]) // names are made of the index
	return instance.Node{Instance: i, Index: index}
}
