# Two Soft-RoCE devices, rxe0 at 10.1.0.1 and rxe1 at 10.1.0.2, and a switch between them, whose
# port to rxe1 does what `gradwire switch render` says.
#
# Soft-RoCE of Linux 6.1 knows the first network namespace only. So both hosts are in it, only the
# switch S is not; and since both addresses are this machine's own, rules that come before the
# table `local` send packets from one to the other out of the port, through S.
set -e
PATH=$PATH:/test
OUT=/test/out
modprobe -a veth bridge sch_htb sch_prio sch_red cls_u32
modprobe -a crc32_generic rdma_rxe ib_uverbs
PLAN="--platform linux:lab --ports s1 --rtt 10ms /test/job.toml /test/fabric.toml"
on() { ip netns exec "$@"; }

ip netns add S
ip -n S link add br0 type bridge
ip -n S link set br0 up
for host in 0 1; do
    ip link add h$host type veth peer name s$host netns S
    # Packets that leave in one piece would be judged in one piece.
    ethtool -K h$host tso off gso off tx-udp-segmentation off >/dev/null
    ip link set h$host mtu 4200 up
    ip -n S link set s$host mtu 4200 master br0 up
    ip addr add 10.1.0.$((host + 1))/24 dev h$host
done

for port in all default h0 h1; do
    echo 1 >/proc/sys/net/ipv4/conf/$port/accept_local
    echo 0 >/proc/sys/net/ipv4/conf/$port/rp_filter
    echo 1 >/proc/sys/net/ipv4/conf/$port/arp_ignore
done
ip rule add pref 100 lookup local
ip rule del pref 0
# Port, its host, the other one.
across() {
    ip route add "$3" dev "$1" table "1${1#h}"
    ip rule add pref "1${1#h}" iif lo from "$2" to "$3" lookup "1${1#h}"
    ip neigh replace "$3" lladdr "$4" dev "$1" nud permanent
}
across h0 10.1.0.1 10.1.0.2 "$(cat /sys/class/net/h1/address)"
across h1 10.1.0.2 10.1.0.1 "$(cat /sys/class/net/h0/address)"

rdma link add rxe0 type rxe netdev h0
rdma link add rxe1 type rxe netdev h1

# shellcheck disable=SC2086  # options
gradwire switch render $PLAN >/tmp/switch.sh 2>$OUT/notes
on S sh /tmp/switch.sh
counters() { on S tc -s -j qdisc show >"$OUT/$1"; }
told() { echo "$1: $(cut -d' ' -f1 /proc/uptime)"; }

# What each run leaves is checked by cli/tests/test_machine/rdma.rs.
{ rdma link; ibv_devices; } >$OUT/devices
gradwire doctor --job /test/job.toml --json >$OUT/doctor.json
counters pingpong-before.json
ibv_ud_pingpong -d rxe1 -g 1 -n 20 >$OUT/pingpong-rank1 2>&1 &
sleep 1
ibv_ud_pingpong -d rxe0 -g 1 -n 20 10.1.0.2 >$OUT/pingpong-rank0 2>&1
wait $!
counters pingpong-after.json
told pingpong

# A job file: its name, and lines for it; what is said twice counts once, so a line replaces.
job() {
    file=/tmp/$1.toml
    shift
    cp /test/job.toml "$file"
    for line in "$@"; do
        sed -i "/^${line%% *} /d" "$file"
        echo "$line" >>"$file"
    done
}
# Starts a rank of a job: its number, the job's name, options.
rank() {
    number=$1 name=$2
    shift 2
    timeout -s KILL 60 gradwire rank --rank "$number" --world 2 --token test "$@" \
        --job "/tmp/$name.toml" --rendezvous 10.1.0.1:29400 --bind 10.1.0.$((number + 1)) \
        >"$OUT/$name-rank$number.json" 2>"$OUT/$name-rank$number.errors" && code=0 || code=$?
    echo "$code" >"$OUT/$name-rank$number.code"
}
# Both ranks of a job: its name, options. What happens meanwhile is done when both have joined.
ranks() {
    name=$1
    shift
    counters "$name-before.json"
    rank 0 "$name" "$@" &
    rank 1 "$name" "$@" &
    if [ -n "$MEANWHILE" ]; then
        for _ in $(seq 100); do
            [ "$(grep -l joined "$OUT/$name"-rank?.json | wc -l)" = 2 ] && break
            sleep 0.1
        done
        sleep 0.1
        $MEANWHILE
    fi
    wait
    counters "$name-after.json"
    told "$name"
}
MEANWHILE=

counters perf-before.json
gradwire perf all-reduce -n 2 --bind 10.1.0.1,10.1.0.2 --job /test/job.toml -b 4K -e 4M -f 32 \
    --iterations 1 --warmup 0 --json >$OUT/perf.json 2>$OUT/perf.errors
counters perf-after.json
told perf
counters buckets-before.json
gradwire perf buckets -n 2 --bind 10.1.0.1,10.1.0.2 --job /test/job.toml --buckets 6 \
    --total 384K --rounds 1 --json >$OUT/buckets.json 2>$OUT/buckets.errors
counters buckets-after.json
told buckets

job tolerant 'tolerance = 0.6'
ranks tolerant --bytes 256K --iterations 3
job lossy 'tolerance = 0.05'
ranks lossy --bytes 256K --iterations 3

job gradients 'tolerance = 0.1'
rank 0 gradients --tensor /test/gradients-0.f32 --result $OUT/sum-0.f32 &
rank 1 gradients --tensor /test/gradients-1.f32 --result $OUT/sum-1.f32 &
wait
told gradients

job drop 'faults.drop = 0.2'
job duplicate 'faults.duplicate = 0.3'
job reorder 'faults.reorder = 0.3'
job corrupt 'faults.corrupt = 0.1'
for fault in drop duplicate reorder corrupt; do
    ranks $fault --bytes 128K --iterations 2
done
job one_way 'faults.one_way = ["0->1"]' 'transport.peer_timeout = "2s"'
ranks one_way --bytes 64K --iterations 2

# What is wrong before a rank can join.
job device 'transport.rdma_device = "mlx5_0"'
job gid 'transport.rdma_gid = 200'
job mtu 'transport.mtu = 9000'
for name in device gid mtu; do rank 0 $name; done
cp /test/job.toml /tmp/permission.toml
cp /test/job.toml /tmp/memory.toml
cp /test/job.toml /tmp/library.toml
mkdir -p /etc
echo 'nobody:x:65534:65534::/:/bin/sh' >/etc/passwd
chmod 777 $OUT
chmod 600 /dev/infiniband/uverbs*
nobody() { su nobody -s /bin/sh -c "$*"; }
START="/test/gradwire rank --rank 0 --world 2 --token test --bind 10.1.0.1"
START="$START --rendezvous 10.1.0.1:29400"
nobody "$START --job /tmp/permission.toml" 2>$OUT/permission-rank0.errors ||
    echo $? >$OUT/permission-rank0.code
chmod 666 /dev/infiniband/uverbs*
nobody "ulimit -l 64; $START --job /tmp/memory.toml" 2>$OUT/memory-rank0.errors ||
    echo $? >$OUT/memory-rank0.code
mv /usr/lib/x86_64-linux-gnu/libibverbs.so.1 /tmp/
rank 0 library
mv /tmp/libibverbs.so.1 /usr/lib/x86_64-linux-gnu/
told refused

# What goes wrong while a job runs.
END='transport.peer_timeout = "2s"'
job narrow "$END"
ip link set h1 mtu 1500
ranks narrow --bytes 64K --iterations 2
ip link set h1 mtu 4200
job cable "$END"
MEANWHILE='ip link set h1 down'
ranks cable --bytes 64K --iterations 100000
ip link set h1 up
across_again() { ip route replace 10.1.0.1 dev h1 table 11; }
across_again
ip neigh replace 10.1.0.1 lladdr "$(cat /sys/class/net/h0/address)" dev h1 nud permanent
job gone "$END"
MEANWHILE='rdma link delete rxe1'
ranks gone --bytes 64K --iterations 100000
MEANWHILE=
ip link set h0 down
cp /test/job.toml /tmp/down.toml
rank 0 down
told end
dmesg | tail -n 30 >$OUT/dmesg
