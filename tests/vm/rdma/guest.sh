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

# shellcheck disable=SC2086  # options
gradwire switch render $PLAN >/tmp/switch.sh 2>$OUT/notes
on S sh /tmp/switch.sh
counters() { on S tc -s -j qdisc show >"$OUT/$1"; }

rdma link add rxe0 type rxe netdev h0
rdma link add rxe1 type rxe netdev h1
{ rdma link; ibv_devices; } >$OUT/devices
counters pingpong-before.json
ibv_ud_pingpong -d rxe1 -g 1 -n 20 >$OUT/pingpong-rank1 2>&1 &
sleep 1
ibv_ud_pingpong -d rxe0 -g 1 -n 20 10.1.0.2 >$OUT/pingpong-rank0 2>&1
wait $!
counters pingpong-after.json
