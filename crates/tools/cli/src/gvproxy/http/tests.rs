use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use proptest::prelude::*;

use super::*;

/// Sends bytes as a client that then closes the connection. Returns the request that the server has read, or the reason
/// why there is none.
fn read(bytes: &[u8], preface: HttpPreface) -> Result<HttpRequest, RequestError> {
    let (mut client, own) = UnixStream::pair().unwrap();
    let own = GvStream::from(OwnedFd::from(own));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // The write may fail, since the server may refuse the request before it has read all bytes.
            let _ = client.write_all(bytes);
        });
        let mut reader = RequestReader { stream: &own, bytes: Vec::new(), until: Instant::now() + LIMIT };
        let request = reader.request(preface);
        own.shutdown(Shutdown::Both);
        request
    })
}

fn plain(text: &str) -> Result<HttpRequest, RequestError> {
    read(text.as_bytes(), HttpPreface::None)
}

#[test]
fn a_body_is_read_by_its_length_or_in_chunks_and_the_rest_is_kept() {
    let request = plain("POST /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}rest").unwrap();
    let parts = (request.method.as_str(), request.path.as_str(), request.query.as_str());
    assert_eq!(parts, ("POST", "/a", "b=c"));
    assert_eq!((request.body.as_slice(), request.rest.as_slice()), (&b"{}"[..], &b"rest"[..]));
    let chunks = "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1;x=y\r\nd\r\n0\r\n\r\n!";
    let request = plain(chunks).unwrap();
    assert_eq!((request.body.as_slice(), request.rest.as_slice()), (&b"abcd"[..], &b"!"[..]));
    assert_eq!(plain("GET http://unix/stats HTTP/1.1\r\n\r\n").unwrap().path, "/stats");
}

#[test]
fn the_proxy_line_tells_the_clients_address() {
    let text = "PROXY TCP4 192.168.127.2 192.168.127.1 40000 80\r\nGET / HTTP/1.1\r\n\r\n";
    let request = read(text.as_bytes(), HttpPreface::ProxyLine).unwrap();
    assert_eq!(request.client.as_deref(), Some("192.168.127.2:40000"));
    let refused = read(b"GET / HTTP/1.1\r\n\r\n", HttpPreface::ProxyLine);
    assert_eq!(refused, Err(RequestError::Status(400)));
}

#[test]
fn malformed_requests_are_refused_with_their_status() {
    let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(MAX_HEAD));
    let fields = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(MAX_FIELDS + 1));
    let large = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", MAX_BODY + 1);
    for (text, status) in [
        ("nonsense\r\n\r\n", 400),
        (&long, 431),
        (&fields, 431),
        ("POST / HTTP/1.1\r\nContent-Length: 1048577\r\n\r\n", 413),
        ("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na", 400),
        ("POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\na", 400),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 400),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc", 400),
        (&large, 413),
    ] {
        assert_eq!(plain(text), Err(RequestError::Status(status)), "{text:.60}");
    }
    assert_eq!(plain("POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc"), Err(RequestError::Gone));
    assert_eq!(plain(""), Err(RequestError::Gone));
}

/// Objective: over a socket, an answer has gvproxy's head; a connection that is taken over carries bytes both ways, and
/// other connections need not wait for it.
#[test]
fn answers_are_sent_and_connections_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    let listener = Arc::new(GvListener::at_path(&path).unwrap());
    let answers = |request: HttpRequest| match request.path.as_str() {
        "/take" => HttpReply::Taken(Box::new(move |stream| {
            let mut stream = &stream;
            stream.write_all(&request.rest).unwrap();
            io::copy(&mut { stream }, &mut io::sink()).unwrap();
        })),
        _ => HttpReply::Text(400, "post only\n".into()),
    };
    let thread = serve(Arc::clone(&listener), Arc::new(answers), HttpPreface::None).unwrap();
    let ask = |text: &str| {
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(text.as_bytes()).unwrap();
        client
    };
    let mut taken = Vec::new();
    for _ in 0..MAX_CLIENTS + 4 {
        let mut client = ask("POST /take HTTP/1.1\r\n\r\nhello");
        let mut said = [0; 5];
        client.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"hello");
        taken.push(client);
    }
    let mut said = String::new();
    ask("GET / HTTP/1.1\r\n\r\n").read_to_string(&mut said).unwrap();
    let expected = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
                    X-Content-Type-Options: nosniff\r\nContent-Length: 10\r\nConnection: close\r\n\r\npost only\n";
    assert_eq!(said, expected);
    drop(taken);
    listener.close();
    thread.join().unwrap();
}

proptest! {
    /// Objective: the server reads or refuses a request that consists of arbitrary bytes.
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let line = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        for start in [&line[..], &b""[..]] {
            let _ = read(&[start, &bytes].concat(), HttpPreface::None);
        }
    }
}
