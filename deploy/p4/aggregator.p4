// The fixed-point core of gradwire's aggregator for a switch: P4_16, v1model, like SwitchML.
//
// It adds, answers and multicasts as collectives/src/aggregation/slots.rs does, packet by packet.
// A switch neither opens seals nor checks a CRC over payloads, so it needs jobs with
//     security = "none"    transport.checksum = false    transport.mtu = 576 (116 integers a packet)
// A controller answers the ranks' TCP connections (transport/src/pair.rs) and fills four tables,
// each once per rank that has paired:
//     members   header.job of the pair        -> join(seat, all, base, group)
//     copies    multicast copy (egress_rid)   -> address(...): the rank's MAC, IP, ports, pair, seat
//     answers   header.job of the pair        -> address(...), the same values
//     routes    IPv4 destination              -> forward(port): every other packet, and answers
// and for each group of ranks a multicast group with one copy per rank, whose rid is rank + 1.
// `base` is the first slot of the group: a multiple of SLOTS, whose `rounds` the controller sets to 0
// when it gives it to a new group or era. `all` has one bit for each seat, of which there are 32.
//
// No compiler was at hand when this was written: it has been read, and not compiled.

#include <core.p4>
#include <v1model.p4>

#define SLOTS 128
#define STREAMS 16
#define WORDS 116
const bit<8> VERSION = 11;
const bit<8> SUM = 10;
const bit<8> TOTAL = 11;
const bit<16> GRADWIRE_LENGTH = 536;  // UDP header, 64 bytes of header, 116 integers

header ethernet_t { bit<48> destination; bit<48> source; bit<16> kind; }

header ipv4_t {
    bit<4> version; bit<4> ihl; bit<8> tos; bit<16> length;
    bit<16> id; bit<16> fragment; bit<8> ttl; bit<8> protocol; bit<16> checksum;
    bit<32> source; bit<32> destination;
}

header udp_t { bit<16> source; bit<16> destination; bit<16> length; bit<16> checksum; }

// protocol/src/wire.rs. Its numbers are little-endian: those that are compared or counted are turned
// by `turned32`, the rest stays as it came.
header gradwire_t {
    bit<8> version; bit<8> kind; bit<8> flags; bit<8> class;
    bit<32> job;
    bit<16> epoch; bit<16> rank;
    bit<32> step;
    bit<64> stream;
    bit<32> message;
    bit<8> segment; bit<16> segment_high; bit<8> signature_low;
    bit<8> segments; bit<16> segments_high; bit<8> signature_middle;
    bit<32> number;
    bit<32> message_bytes;
    bit<16> length; bit<16> layer;
    bit<8> magnitude; bit<8> entropy; bit<16> contributors;
    bit<32> sent_at;
    bit<24> protected; bit<8> signature_high;
    bit<32> checksum;
}

header word_t { bit<32> value; }

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    udp_t udp;
    gradwire_t gradwire;
    word_t[WORDS] words;
}

struct metadata_t {
    bit<32> own;       // this seat's bit
    bit<32> all;
    bit<32> base;
    bit<16> group;
    bit<1> member;
    bit<1> answer;
}

// Of each slot: the round that it holds plus one, and the seats whose contributions are in it.
register<bit<32>>(STREAMS * SLOTS) rounds;
register<bit<32>>(STREAMS * SLOTS) seen;
register<bit<32>>(STREAMS * SLOTS * WORDS) sums;

#define TURNED32(x) (x[7:0] ++ x[15:8] ++ x[23:16] ++ x[31:24])

// F is a macro of one index; these expand it for all words.
#define FOUR(F, i) F((i)) F((i) + 1) F((i) + 2) F((i) + 3)
#define SIXTEEN(F, i) FOUR(F, (i)) FOUR(F, (i) + 4) FOUR(F, (i) + 8) FOUR(F, (i) + 12)
#define EVERY_WORD(F) \
    SIXTEEN(F, 0) SIXTEEN(F, 16) SIXTEEN(F, 32) SIXTEEN(F, 48) \
    SIXTEEN(F, 64) SIXTEEN(F, 80) SIXTEEN(F, 96) FOUR(F, 112)

parser SumParser(packet_in packet, out headers_t h, inout metadata_t m,
                 inout standard_metadata_t s) {
    state start {
        packet.extract(h.ethernet);
        transition select(h.ethernet.kind) {
            0x0800: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(h.ipv4);
        transition select(h.ipv4.ihl, h.ipv4.protocol) {
            (5, 17): udp;
            default: accept;
        }
    }
    state udp {
        packet.extract(h.udp);
        transition select(h.udp.length) {
            GRADWIRE_LENGTH: gradwire;
            default: accept;
        }
    }
    state gradwire {
        packet.extract(h.gradwire);
        transition select(h.gradwire.version, h.gradwire.kind, h.gradwire.segments) {
            (VERSION, SUM, SLOTS): words;
            default: accept;
        }
    }
    state words {
        packet.extract(h.words.next);
        transition select(h.words.lastIndex) {
            WORDS - 1: accept;
            default: words;
        }
    }
}

control NoCheck(inout headers_t h, inout metadata_t m) { apply { } }

control SumIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    bit<32> at;
    bit<32> held;

    action begin() {
#define WORD(i) sums.write(at * WORDS + (i), h.words[i].value);
        EVERY_WORD(WORD)
#undef WORD
    }

    action add() {
#define WORD(i) \
        sums.read(held, at * WORDS + (i)); \
        h.words[i].value = h.words[i].value + held; \
        sums.write(at * WORDS + (i), h.words[i].value);
        EVERY_WORD(WORD)
#undef WORD
    }

    action recall() {
#define WORD(i) sums.read(h.words[i].value, at * WORDS + (i));
        EVERY_WORD(WORD)
#undef WORD
    }

    action join(bit<8> seat, bit<32> all, bit<32> base, bit<16> group) {
        m.own = 32w1 << seat;
        m.all = all;
        m.base = base;
        m.group = group;
        m.member = 1;
    }

    table members {
        key = { h.gradwire.job: exact; }
        actions = { join; NoAction; }
        default_action = NoAction();
        size = 512;
    }

    action address(bit<48> mac, bit<32> ip, bit<16> port, bit<32> own_ip, bit<16> own_port,
                   bit<32> pair, bit<16> layer) {
        h.ethernet.destination = mac;
        h.ipv4.source = own_ip;
        h.ipv4.destination = ip;
        h.udp.source = own_port;
        h.udp.destination = port;
        h.gradwire.job = pair;
        h.gradwire.layer = layer;
    }

    table answers {
        key = { h.gradwire.job: exact; }
        actions = { address; NoAction; }
        default_action = NoAction();
        size = 512;
    }

    action forward(bit<9> port) { s.egress_spec = port; }
    action drop() { mark_to_drop(s); }

    table routes {
        key = { h.ipv4.destination: lpm; }
        actions = { forward; drop; }
        default_action = drop();
        size = 1024;
    }

    apply {
        bool is_sum = h.words[WORDS - 1].isValid() && h.gradwire.segment < SLOTS
            && h.gradwire.segment_high == 0 && h.gradwire.segments_high == 0;
        if (is_sum) {
            members.apply();
        }
        if (m.member == 1) {
            bit<32> round = TURNED32(h.gradwire.message) + 1;
            bit<32> known;
            bit<32> seats;
            at = m.base + (bit<32>) h.gradwire.segment;
            @atomic {
                rounds.read(known, at);
                seen.read(seats, at);
                if (round > known) {
                    rounds.write(at, round);
                    seen.write(at, m.own);
                    begin();
                    seats = 0;
                    mark_to_drop(s);
                } else if (round < known) {
                    mark_to_drop(s);
                } else if (seats == m.all) {
                    recall();
                    m.answer = 1;
                } else if (seats & m.own != 0) {
                    mark_to_drop(s);
                } else {
                    seen.write(at, seats | m.own);
                    add();
                    if (seats | m.own == m.all) {
                        h.gradwire.kind = TOTAL;
                        s.mcast_grp = m.group;
                    } else {
                        mark_to_drop(s);
                    }
                }
            }
        }
        if (m.answer == 1) {
            h.gradwire.kind = TOTAL;
            answers.apply();
        }
        if (m.member == 0 || m.answer == 1) {
            if (h.ipv4.isValid()) {
                routes.apply();
            } else {
                drop();
            }
        }
    }
}

control SumEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action address(bit<48> mac, bit<32> ip, bit<16> port, bit<32> own_ip, bit<16> own_port,
                   bit<32> pair, bit<16> layer) {
        h.ethernet.destination = mac;
        h.ipv4.source = own_ip;
        h.ipv4.destination = ip;
        h.udp.source = own_port;
        h.udp.destination = port;
        h.gradwire.job = pair;
        h.gradwire.layer = layer;
    }

    table copies {
        key = { s.egress_rid: exact; }
        actions = { address; NoAction; }
        default_action = NoAction();
        size = 512;
    }

    apply {
        if (s.egress_rid != 0) {
            copies.apply();
        }
        if (h.gradwire.isValid() && h.gradwire.kind == TOTAL) {
            h.gradwire.flags = 0;
            h.gradwire.epoch = 0;
            h.gradwire.rank = 0x0100;  // the aggregator, little-endian
            h.udp.checksum = 0;
        }
    }
}

control UpdateChecksum(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum(h.ipv4.isValid() && h.ipv4.ihl == 5,
            { h.ipv4.version, h.ipv4.ihl, h.ipv4.tos, h.ipv4.length, h.ipv4.id, h.ipv4.fragment,
              h.ipv4.ttl, h.ipv4.protocol, h.ipv4.source, h.ipv4.destination },
            h.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control SumDeparser(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.ethernet);
        packet.emit(h.ipv4);
        packet.emit(h.udp);
        packet.emit(h.gradwire);
        packet.emit(h.words);
    }
}

V1Switch(SumParser(), NoCheck(), SumIngress(), SumEgress(), UpdateChecksum(), SumDeparser()) main;
