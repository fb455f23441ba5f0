//! The page, as browsers and as those who are none see it.

mod access;
mod actions;
mod limits;
mod pages;

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use crate::server::{Directory, PATIENCE, Server};

/// A server with a page.
struct Page {
    server: Server,
    /// Host and port.
    place: String,
    token: String,
}

/// What came back.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Answer {
    fn read(mut stream: impl Read) -> Self {
        let mut bytes = Vec::new();
        match stream.read_to_end(&mut bytes) {
            Ok(_) => {}
            // Whoever was refused before it had said all may see its connection cut off.
            Err(error) if CUT_OFF.contains(&error.kind()) => {}
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

const CUT_OFF: [ErrorKind; 3] =
    [ErrorKind::ConnectionReset, ErrorKind::ConnectionAborted, ErrorKind::UnexpectedEof];

/// A browser: where it is, and what it was given to keep.
struct Browser {
    place: String,
    cookie: String,
}

impl Browser {
    fn ask(&self, request: &str, headers: &[&str], body: &str) -> Answer {
        let mut stream = TcpStream::connect(&self.place).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(self.write(request, headers, body).as_bytes()).expect("sent");
        Answer::read(stream)
    }

    /// Returns a request. Who gives a Host or an Origin means another than the right one.
    fn write(&self, request: &str, headers: &[&str], body: &str) -> String {
        let has = |name: &str| headers.iter().any(|header| header.starts_with(name));
        let mut text = format!("{request} HTTP/1.1\r\nConnection: close\r\nCookie: {}\r\n", self.cookie);
        if !has("Host") {
            text += &format!("Host: {}\r\n", self.place);
        }
        if !body.is_empty() {
            text += &format!("Content-Length: {}\r\n", body.len());
            text += "Content-Type: application/x-www-form-urlencoded\r\n";
            if !has("Origin") {
                text += &format!("Origin: http://{}\r\n", self.place);
            }
        }
        for header in headers.iter().filter(|header| !header.ends_with("none")) {
            text += &format!("{header}\r\n");
        }
        text + "\r\n" + body
    }

    fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path}"), &[], "")
    }

    fn post(&self, path: &str, body: &str) -> Answer {
        self.ask(&format!("POST {path}"), &[], body)
    }

    /// What a form of a page must bring along.
    fn csrf(&self) -> String {
        let page = self.get("/").body;
        let rest = page.split("name=\"csrf\" value=\"").nth(1).unwrap_or_else(|| panic!("no form: {page}"));
        rest.split('"').next().expect("a value").into()
    }

    /// Sends a form as the page does, and returns what is told then.
    fn act(&self, form: &str) -> String {
        let answer = self.post("/act", &format!("csrf={}&{form}", self.csrf()));
        assert_eq!(answer.status, 303, "{answer:?}");
        let page = self.get(answer.header("location")).body;
        let rest = page.split("id=\"note\">").nth(1).unwrap_or_else(|| panic!("nothing told: {page}"));
        rest.split("</p>").next().expect("a text").into()
    }
}

impl Page {
    fn start(args: &[&str]) -> Self {
        Self::start_in(Directory::new(), args)
    }

    fn start_in(directory: Directory, args: &[&str]) -> Self {
        let bind =
            if args.iter().any(|arg| arg.starts_with("web.bind")) { "" } else { "web.bind=127.0.0.1:0" };
        let mut all = vec!["--set", "web.enabled=true"];
        if !bind.is_empty() {
            all.extend(["--set", bind]);
        }
        all.extend(args);
        let server = Server::start_in(directory, &all, 1);
        let line = server.logged(&["event=\"started\""]);
        let url = line.split("web=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a place");
        let place = url.split('/').nth(2).expect("host and port").replace("0.0.0.0", "127.0.0.1");
        let token = fs::read_to_string(server.directory.path("web-token")).expect("a token");
        Self { server, place, token: token.trim().into() }
    }

    fn visitor(&self) -> Browser {
        Browser { place: self.place.clone(), cookie: String::new() }
    }

    fn operator(&self) -> Browser {
        let answer = self.visitor().post("/login", &format!("token={}&name=Ann", self.token));
        assert_eq!((answer.status, answer.header("location")), (303, "/"), "{answer:?}");
        let cookie = answer.header("set-cookie").split(';').next().expect("a cookie").to_owned();
        Browser { cookie, ..self.visitor() }
    }
}

/// Whose name and chat are a trap for pages.
const TRAP: &str = "<script>alert(1)</script>";
