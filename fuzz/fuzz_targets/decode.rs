//! Arbitrary bytes as one datagram: an accepted header encodes to the bytes that were read, and the
//! report and bitmap after it stay within their stated lengths.

#![no_main]

use gradwire_protocol::bitmap::decode_runs;
use gradwire_protocol::wire::{HEADER_BYTES, Header, PASSED_MAX, REPORT_BYTES, SegmentReport};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|datagram: &[u8]| {
    let Ok((header, payload)) = Header::decode(datagram) else {
        return;
    };
    let mut written = [0; HEADER_BYTES];
    header.encode(&mut written);
    assert_eq!(
        written,
        datagram[..HEADER_BYTES],
        "decode and encode are inverse"
    );
    let Some((report, bitmap)) = SegmentReport::decode(payload) else {
        return;
    };
    let mut read = payload[..REPORT_BYTES].to_vec();
    for flag in [41, 42] {
        // Only 1 says yes.
        read[flag] = u8::from(read[flag] == 1);
    }
    assert_eq!(
        report.encoded()[..],
        read,
        "a report is written as it was read"
    );
    let paths = report.passed_paths(bitmap).count();
    assert!(
        paths <= PASSED_MAX.min(report.passed.into()),
        "no path is made up"
    );
    let mut after = 0;
    decode_runs(bitmap, report.bits, |first, length| {
        assert!(
            first >= after && length > 0,
            "runs are in order and not empty"
        );
        after = first + length;
        assert!(after <= report.bits, "no run leaves the window");
    });
});
