#!/bin/sh
# A fabric on one machine: four hosts, two leaves and two spines, each a network namespace.
#
#   host 0   host 1      host 2   host 3       10.85.0.2  10.85.1.2  10.85.2.2  10.85.3.2
#       \    /               \    /
#       leaf 0               leaf 1            routers with the queues of job.toml, 200 Mb/s a port,
#        |   \             /   |               set up by `gradwire switch apply`
#       spine 0 ---------- spine 1             (each leaf has a link to each spine)
#
# Leaves hash the UDP source port alone. Hosts take their ports from a range of 65 that is chosen so
# that half of them lead to each spine: many switches' hash (CRC) spreads consecutive ports evenly,
# the kernel's spreads them by chance, and 64 paths are few.
set -eu

usage="usage: lab.sh up|down|status [NAME]
       lab.sh cut|mend SPINE [NAME]      takes the links of spine 0 or 1 down, and up again
NAME stands before the names of all namespaces; without it, gwlab."
fabric=leaf-spine:2x2x2@200M
here=$(dirname "$0")

fail() {
    echo "lab.sh: $1" >&2
    exit 2
}

rooms() {
    for room in h0 h1 h2 h3 l0 l1 s0 s1; do echo "$name-$room"; done
}

# A veth pair: host or switch, its interface, and the same of the other end. Packets in one piece
# would be judged in one piece: none is sent so.
join() {
    ip link add "$2" netns "$name-$1" gso_max_segs 1 type veth \
        peer name "$4" netns "$name-$3" gso_max_segs 1
}

address() { # room, interface, address
    ip -n "$name-$1" address add "$3/24" dev "$2"
    ip -n "$name-$1" link set "$2" up
}

setting() { # room, path below /proc/sys/net/ipv4, value; left out where the kernel has none
    ip netns exec "$name-$1" sh -c '[ ! -e "$1" ] || echo "$2" >"$1"' - \
        "/proc/sys/net/ipv4/$2" "$3"
}

down() {
    for switch in l0 l1 s0 s1; do
        gradwire switch apply --netns "$name-$switch" --remove >/dev/null 2>&1 || true
    done
    for room in $(rooms); do
        ip netns delete "$room" 2>/dev/null || true
    done
}

up() {
    for room in $(rooms); do
        [ ! -e "/run/netns/$room" ] || fail "$room exists: lab.sh down $name, or another NAME"
    done
    trap down EXIT
    for room in $(rooms); do
        ip netns add "$room"
        ip -n "$room" link set lo up
    done
    for host in 0 1 2 3; do
        leaf=$((host / 2))
        join "h$host" eth0 "l$leaf" "h$host"
        address "h$host" eth0 "10.85.$host.2"
        address "l$leaf" "h$host" "10.85.$host.1"
        ip -n "$name-h$host" route add default via "10.85.$host.1"
        # A card of the same speed as the links.
        tc -n "$name-h$host" qdisc add dev eth0 root handle 1: htb default 1
        tc -n "$name-h$host" class add dev eth0 parent 1: classid 1:1 \
            htb quantum 1514 rate 200mbit burst 6250
    done
    for leaf in 0 1; do
        for spine in 0 1; do
            join "l$leaf" "s$spine" "s$spine" "l$leaf"
            address "l$leaf" "s$spine" "10.85.1$leaf$spine.1"
            address "s$spine" "l$leaf" "10.85.1$leaf$spine.2"
        done
    done
    switches
    routes
    ports
    trap - EXIT
}

switches() {
    for number in 0 1; do
        first=$((number * 2))
        apply "l$number" "leaf $number" "h$first,h$((first + 1)),s0,s1"
        apply "s$number" "spine $number" "l0,l1"
    done
}

apply() { # room, switch of the fabric, ports
    gradwire switch apply --netns "$name-$1" --existing --router --switch "$2" --ports "$3" \
        --rtt 5ms "$here/job.toml" "$fabric"
}

routes() {
    for leaf in 0 1; do
        for host in $((2 - leaf * 2)) $((3 - leaf * 2)); do
            ip -n "$name-l$leaf" route add "10.85.$host.0/24" \
                nexthop via "10.85.1${leaf}0.2" nexthop via "10.85.1${leaf}1.2"
        done
        # The source port alone, and no way that has lost its link.
        setting "l$leaf" fib_multipath_hash_policy 3
        setting "l$leaf" fib_multipath_hash_fields 16
        setting "l$leaf" fib_multipath_hash_seed 1
        setting "l$leaf" conf/all/ignore_routes_with_linkdown 1
        for spine in 0 1; do
            for host in $((leaf * 2)) $((leaf * 2 + 1)); do
                ip -n "$name-s$spine" route add "10.85.$host.0/24" via "10.85.1$leaf$spine.1"
            done
        done
    done
}

# Source ports of a host: 64 for the paths of a rank, one more for what else it opens.
count=65

# How many of these ports a leaf sends to spine 0.
led() { # leaf, first port
    host=$(($1 * 2))
    far=$((2 - host))
    seq "$2" $(($2 + count - 1)) |
        sed "s|.*|from 10.85.$host.2 iif h$host ipproto udp sport & dport 9|" |
        sed "s|^|route get 10.85.$far.2 |" |
        ip -n "$name-l$1" -batch - | grep -c 'dev s0'
}

# Of the odd port, leaf 0 gives spine 0 the larger half, leaf 1 the smaller.
ports() {
    for leaf in 0 1; do
        first=20000
        until [ "$(led $leaf "$first")" -eq $(((count + 1 - leaf) / 2)) ]; do
            first=$((first + count))
            [ "$first" -lt 40000 ] || fail "this kernel spreads no range of ports evenly"
        done
        for host in $((leaf * 2)) $((leaf * 2 + 1)); do
            setting "h$host" ip_local_port_range "$first $((first + count - 1))"
        done
        echo "$name: behind leaf $leaf, half of the ports from $first on lead to each spine"
    done
}

status() {
    for spine in 0 1; do
        for leaf in 0 1; do
            ip netns exec "$name-s$spine" sh -c '
                cd "/sys/class/net/$1/statistics"
                echo "spine $2, leaf $3: $(cat rx_bytes) bytes in, $(cat tx_bytes) bytes out"
            ' - "l$leaf" "$spine" "$leaf"
        done
    done
}

links() { # spine, up or down
    for leaf in 0 1; do ip -n "$name-s$1" link set "l$leaf" "$2"; done
    if [ "$2" = up ]; then
        for leaf in 0 1; do
            for host in $((leaf * 2)) $((leaf * 2 + 1)); do
                ip -n "$name-s$1" route replace "10.85.$host.0/24" via "10.85.1$leaf$1.1"
            done
        done
    fi
}

action=${1:-}
spine=${2:-}
case $action in
    up | down | status) name=${2:-gwlab} ;;
    cut | mend)
        name=${3:-gwlab}
        case $spine in 0 | 1) ;; *) fail "$action which spine? 0 or 1" ;; esac
        ;;
    *)
        echo "$usage" >&2
        exit 2
        ;;
esac
[ "$(id -u)" -eq 0 ] || fail "network namespaces need root: run this by sudo"
for program in ip tc gradwire; do
    command -v "$program" >/dev/null || fail "there is no $program in PATH"
done
case $action in
    cut) links "$spine" down ;;
    mend) links "$spine" up ;;
    *) "$action" ;;
esac
