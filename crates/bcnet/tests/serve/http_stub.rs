//! A small HTTP server with answers that the test defines.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use serde_json::Value;

use crate::server::TEST_TIMEOUT;

/// A received request.
#[derive(Debug)]
pub(crate) struct StubRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Header names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

/// An HTTP server on 127.0.0.1.
pub(crate) struct HttpStub {
    pub(crate) port: u16,
    requests: Receiver<StubRequest>,
}

impl HttpStub {
    /// Starts the server. `answer` writes the answer to each request; requests are numbered from 0.
    pub(crate) fn start(answer: impl FnMut(usize, &StubRequest, &mut TcpStream) + Send + 'static) -> Self {
        Self::start_at(0, answer)
    }

    pub(crate) fn start_at(
        port: u16,
        mut answer: impl FnMut(usize, &StubRequest, &mut TcpStream) + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let (sender, requests) = mpsc::channel();
        thread::spawn(move || {
            let mut number = 0;
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let Some(request) = read_request(&stream) else { continue };
                answer(number, &request, &mut stream);
                number += 1;
                if sender.send(request).is_err() {
                    break;
                }
            }
        });
        Self { port, requests }
    }

    /// Answers with these statuses in turn, and repeats the last one.
    pub(crate) fn with_statuses(statuses: &'static [&'static str]) -> Self {
        Self::start(move |number, _, stream| {
            let status = statuses[number.min(statuses.len() - 1)];
            drop(stream.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes()));
        })
    }

    /// Waits for the next request.
    pub(crate) fn wait_for_request(&self) -> StubRequest {
        self.requests.recv_timeout(TEST_TIMEOUT).expect("a request")
    }

    /// Returns the next received request, if there is one.
    pub(crate) fn try_next_request(&self) -> Option<StubRequest> {
        self.requests.try_recv().ok()
    }
}

fn read_request(stream: &TcpStream) -> Option<StubRequest> {
    stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
    let mut input = BufReader::new(stream);
    let mut line = String::new();
    input.read_line(&mut line).ok()?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = Vec::new();
    loop {
        line.clear();
        input.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(Some(0), |(_, length)| length.parse().ok())?];
    input.read_exact(&mut body).ok()?;
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).expect("JSON") };
    Some(StubRequest { method, path, headers, body })
}
