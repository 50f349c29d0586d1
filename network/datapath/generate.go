package datapath

//go:generate go tool bpf2go -go-package datapath -target bpfel -output-stem zz_bpf -type drop_reason -type endpoint_kind -type conntrack_direction -type conntrack_flags -type nic_flags -type route_kind -type trace_target -type flow_origin -cflags "-O2 -g -Wall -Wextra -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu" bpf bpf/datapath.c
