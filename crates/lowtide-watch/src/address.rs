//! Where to listen: `9464`, `:9464`, `127.0.0.1:9464`, `[::1]:9464`, `0.0.0.0:9464`.
//!
//! A port alone means this machine only. Figures of a program are for all that can reach the
//! address, so one that others reach has to be spelled out.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

/// Reads an address.
///
/// # Errors
/// A sentence that says what can be given.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text).parse::<u16>();
    if let Ok(port) = port {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    if let Some(port) = text.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse().map_err(|_| {
        "give a port (9464: this machine only), or an address and a port such as 0.0.0.0:9464 or \
         [::]:9464"
            .to_owned()
    })
}

/// An address on which no metrics can be served.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}; give another port, or end what listens there")]
pub struct ListenError {
    /// The address.
    pub address: SocketAddr,
    /// The kernel's error.
    pub source: std::io::Error,
}

/// Listens on an address.
///
/// # Errors
/// [`ListenError`], when the port is in use, say.
pub fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).map_err(|source| ListenError { address, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_on_this_machine_and_others_are_as_they_are_written() {
        for (text, address) in [
            ("9464", "127.0.0.1:9464"),
            (":9464", "127.0.0.1:9464"),
            ("localhost:1", "127.0.0.1:1"),
            ("0.0.0.0:9464", "0.0.0.0:9464"),
            ("[::1]:9464", "[::1]:9464"),
            ("[::]:80", "[::]:80"),
        ] {
            assert_eq!(parse(text), Ok(address.parse().unwrap()), "{text}");
        }
        for wrong in ["", ":", "x", "host:9464", "99999", "0.0.0.0", "1.2.3.4:99999", "::1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_port_that_is_in_use_is_named() {
        let first = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = first.local_addr().unwrap();
        let text = listen(address).unwrap_err().to_string();
        assert!(text.contains(&format!("cannot listen on {address}")), "{text}");
    }
}
