//! How much memory a process has.

/// The resident set of this process (`VmRSS`), in bytes; 0 where the system does not tell.
pub fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    kibibytes(&status, "VmRSS:") * 1024
}

fn kibibytes(status: &str, key: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_sees_the_memory_that_it_holds() {
        // The growth is not checked: other tests run in this process.
        let touched = vec![1_u8; 64 << 20];
        assert!(resident_bytes() >= 60 << 20, "{}", touched.len());
    }

    #[test]
    fn the_line_of_a_key_is_read() {
        let status = "VmPeak:\t  10 kB\nVmRSS:\t  1234 kB\n";
        assert_eq!(kibibytes(status, "VmRSS:"), 1234);
        assert_eq!(kibibytes(status, "VmSwap:"), 0);
    }
}
