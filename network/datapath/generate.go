package datapath

//go:generate go tool bpf2go -go-package datapath -target bpfel -output-stem zz_bpf -type drop_reason -type endpoint_kind -type conntrack_direction -type conntrack_flags -type nic_flags -type route_kind -type trace_target -type trace_step_kind -type flow_origin -type external_kind -cflags "-O2 -g -Wall -Wextra -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu" bpf bpf/datapath.c
//go:generate go tool bpf2go -go-package otherlayout -output-dir otherlayout -target bpfel -output-stem zz_bpf -cflags "-DOTHER_LAYOUT -O2 -g -Wall -Wextra -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu" Bpf bpf/datapath.c
