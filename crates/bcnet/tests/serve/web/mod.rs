//! The operator page, with correct browsers and with other clients.

mod access;
mod actions;
mod limits;
mod pages;

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use crate::server::{ServerProcess, TEST_TIMEOUT, TestDirectory};

/// A server with the operator page.
struct PageServer {
    server: ServerProcess,
    /// Host and port.
    address: String,
    token: String,
}

/// An HTTP response.
#[derive(Debug)]
struct HttpResponse {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

impl HttpResponse {
    fn read(mut stream: impl Read) -> Self {
        let mut bytes = Vec::new();
        match stream.read_to_end(&mut bytes) {
            Ok(_) => {}
            // A refused client may see its connection reset before it has sent everything.
            Err(error) if DISCONNECT_ERRORS.contains(&error.kind()) => {}
            Err(error) => panic!("{error}"),
        }
        let text = String::from_utf8_lossy(&bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text}"));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_lowercase(), value.into())).collect();
        Self { status: status.expect("a status"), headers, body: body.into() }
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

const DISCONNECT_ERRORS: [ErrorKind; 3] =
    [ErrorKind::ConnectionReset, ErrorKind::ConnectionAborted, ErrorKind::UnexpectedEof];

/// A browser: the address of the page, and its cookie.
struct Browser {
    address: String,
    cookie: String,
}

impl Browser {
    fn request(&self, request: &str, headers: &[&str], body: &str) -> HttpResponse {
        let mut stream = TcpStream::connect(&self.address).expect("connected");
        stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
        stream.write_all(self.request_text(request, headers, body).as_bytes()).expect("sent");
        HttpResponse::read(stream)
    }

    /// Returns the text of a request. `headers` may replace the correct Host and Origin.
    fn request_text(&self, request: &str, headers: &[&str], body: &str) -> String {
        let has = |name: &str| headers.iter().any(|header| header.starts_with(name));
        let mut text = format!("{request} HTTP/1.1\r\nConnection: close\r\nCookie: {}\r\n", self.cookie);
        if !has("Host") {
            text += &format!("Host: {}\r\n", self.address);
        }
        if !body.is_empty() {
            text += &format!("Content-Length: {}\r\n", body.len());
            text += "Content-Type: application/x-www-form-urlencoded\r\n";
            if !has("Origin") {
                text += &format!("Origin: http://{}\r\n", self.address);
            }
        }
        for header in headers.iter().filter(|header| !header.ends_with("none")) {
            text += &format!("{header}\r\n");
        }
        text + "\r\n" + body
    }

    fn get(&self, path: &str) -> HttpResponse {
        self.request(&format!("GET {path}"), &[], "")
    }

    fn post(&self, path: &str, body: &str) -> HttpResponse {
        self.request(&format!("POST {path}"), &[], body)
    }

    /// Returns the CSRF value of the page's forms.
    fn csrf(&self) -> String {
        let page = self.get("/").body;
        let rest = page.split("name=\"csrf\" value=\"").nth(1).unwrap_or_else(|| panic!("no form: {page}"));
        rest.split('"').next().expect("a value").into()
    }

    /// Sends a form like the page does. Returns the message on the next page.
    fn submit_form(&self, form: &str) -> String {
        let answer = self.post("/act", &format!("csrf={}&{form}", self.csrf()));
        assert_eq!(answer.status, 303, "{answer:?}");
        let page = self.get(answer.header("location")).body;
        let rest = page.split("id=\"note\">").nth(1).unwrap_or_else(|| panic!("no message: {page}"));
        rest.split("</p>").next().expect("a text").into()
    }
}

impl PageServer {
    fn start(args: &[&str]) -> Self {
        Self::start_in(TestDirectory::new(), args)
    }

    fn start_in(directory: TestDirectory, args: &[&str]) -> Self {
        let bind =
            if args.iter().any(|arg| arg.starts_with("web.bind")) { "" } else { "web.bind=127.0.0.1:0" };
        let mut all = vec!["--set", "web.enabled=true"];
        if !bind.is_empty() {
            all.extend(["--set", bind]);
        }
        all.extend(args);
        let server = ServerProcess::start_in(directory, &all, 1);
        let line = server.wait_for_log(&["event=\"started\""]);
        let url = line.split("web=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a URL");
        let address = url.split('/').nth(2).expect("host and port").replace("0.0.0.0", "127.0.0.1");
        let token = fs::read_to_string(server.directory.path("web-token")).expect("a token");
        Self { server, address, token: token.trim().into() }
    }

    fn anonymous(&self) -> Browser {
        Browser { address: self.address.clone(), cookie: String::new() }
    }

    fn operator(&self) -> Browser {
        let answer = self.anonymous().post("/login", &format!("token={}&name=Ann", self.token));
        assert_eq!((answer.status, answer.header("location")), (303, "/"), "{answer:?}");
        let cookie = answer.header("set-cookie").split(';').next().expect("a cookie").to_owned();
        Browser { cookie, ..self.anonymous() }
    }
}

/// A name and chat text that tries to inject a script.
const HOSTILE_NAME: &str = "<script>alert(1)</script>";
