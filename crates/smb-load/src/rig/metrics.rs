//! Reads the metrics page of a Holdfast server.

use std::{
    io::{Read, Write},
    iter::Sum,
    net::TcpStream,
    str::FromStr,
    time::Duration,
};

use super::Failure;

/// Longest metrics page, bytes.
const PAGE_MAX: u64 = 4 << 20;

/// A server's metrics page.
pub fn page(port: u16) -> Result<String, Failure> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut page = String::new();
    stream.take(PAGE_MAX).read_to_string(&mut page)?;
    Ok(page)
}

/// The sum of a counter over its labels.
pub fn value<T: FromStr + Sum>(page: &str, name: &str) -> Option<T> {
    let mut lines = page
        .lines()
        .filter_map(|line| line.strip_prefix(name))
        // Another counter's name may begin alike.
        .filter(|rest| rest.starts_with(['{', ' ']))
        .filter_map(|rest| rest.rsplit_once(' '))
        .filter_map(|(_, number)| number.parse().ok())
        .peekable();
    lines.peek()?;
    Some(lines.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_added_over_shares() {
        let page = "# TYPE holdfast_syncs_all_total counter\nholdfast_syncs_all_total{share=\"a\"} 3\n\
                    holdfast_syncs_all_total{share=\"b\"} 4\nholdfast_syncs_all_total_failed 8\n";
        assert_eq!(value(page, "holdfast_syncs_all_total"), Some(7_u64));
        assert_eq!(value::<u64>(page, "holdfast_syncs_data_total"), None);
    }
}
