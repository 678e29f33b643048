# Hosts A and B and a switch S between them, all namespaces. The switch's port to B does what
# `gradwire switch render` says; `gradwire switch probe` sends, and the switch counts.
set -e
PATH=$PATH:/test
modprobe -a veth bridge sch_htb sch_prio sch_red cls_u32
OUT=/test/out
PLAN="--platform linux:lab --ports sb --rtt 20ms /test/job.toml /test/fabric.toml"
on() { ip netns exec "$@"; }

for name in A B S; do ip netns add $name; done
ip -n S link add br0 type bridge
ip -n S link set br0 up
for name in a b; do
    host=$(echo $name | tr ab AB)
    ip link add v$name netns $host type veth peer name s$name netns S
    # Packets that leave in one piece would be judged in one piece.
    on $host ethtool -K v$name tso off gso off tx-udp-segmentation off >/dev/null
    ip -n S link set s$name master br0 up
    ip -n $host link set lo up
    ip -n $host link set v$name up
done
ip -n A addr add 10.0.0.1/24 dev va
ip -n B addr add 10.0.0.2/24 dev vb

# shellcheck disable=SC2086  # options
gradwire switch render $PLAN >/tmp/switch.sh 2>$OUT/notes
on S sh /tmp/switch.sh
on B gradwire switch probe --serve --bind 10.0.0.2 --json >/tmp/serving &
while ! [ -s /tmp/serving ]; do sleep 0.1; done
counters() { on S tc -s -j qdisc show >"$OUT/$1"; }

# Name, rates of control and the three classes. The link carries 9.6 Mb/s of payload. What a run
# leaves is checked by cli/tests/test_machine/switch.rs.
probe() {
    counters "$1-before.json"
    on A gradwire switch probe --peer 10.0.0.2:29410 /test/job.toml \
        --rate "$2" --length 3s --json >"$OUT/$1.json" 2>"$OUT/$1.errors" || cat "$OUT/$1.errors"
    counters "$1-after.json"
    # shellcheck disable=SC2086  # options
    gradwire switch verify $PLAN --counters "$OUT/$1-after.json" --since "$OUT/$1-before.json" \
        --json >"$OUT/$1-verify.json" 2>>"$OUT/$1.errors" || head -c 300 "$OUT/$1.errors"
    echo "$1: $(cut -d' ' -f1 /proc/uptime)"
}
probe middle 1M,3M,8M,1M
probe last 1M,2M,2M,7M
probe edge 1M,2M,6.9M,1M

# A job of two ranks over the same switch; name and tolerance.
job() {
    counters "$1-before.json"
    for rank in 0 1; do
        on "$(echo $rank | tr 01 AB)" gradwire rank --rank $rank --world 2 --token test \
            --rendezvous 10.0.0.1:29400 --bind 10.0.0.$((rank + 1)) --job /test/job.toml \
            --tolerance "$2" --bytes 256K --iterations 4 \
            >"$OUT/$1-rank$rank.json" 2>"$OUT/$1-rank$rank.errors" &
        eval "rank$rank=\$!"
    done
    # shellcheck disable=SC2154  # set above
    wait "$rank0"
    wait "$rank1"
    counters "$1-after.json"
    echo "$1: $(cut -d' ' -f1 /proc/uptime)"
}
job tolerant 60%
job lossy 5%
job exact 0%
