//! Actions of operators on the page.

use super::{HOSTILE_NAME, PageServer};
use crate::player::{LoopbackPlayer, join_two, run_both_until};

#[test]
fn operator_sees_chat_and_addresses_and_kicks_a_player() {
    let page = PageServer::start(&[]);
    let [mut alice, mut hostile] = join_two(page.server.address(), ["Alice", HOSTILE_NAME]);
    let line = alice.chat_payload(HOSTILE_NAME);
    alice.chat(HOSTILE_NAME);
    run_both_until(&mut alice, &mut hostile, |hostile| hostile.has_received(&line));
    let operator = page.operator();
    let port = page.server.ports[0];
    let session = operator.get(&format!("/session/{port}")).body;
    assert!(
        session.contains("&lt;script&gt;alert(1)&lt;/script&gt;") && !session.contains(HOSTILE_NAME),
        "chat is escaped"
    );
    let player = operator.get(&format!("/player/{port}/2")).body;
    assert!(player.contains("127.0.0.1:") && player.contains("id=\"dump\""), "{player}");
    assert!(operator.get("/log").body.contains("in_game"));
    // The name in the form must match the player with this id.
    let message = operator.submit_form(&format!("action=kick&session={port}&player=2&name=Bob"));
    assert!(message.contains("Bob has left"), "{message}");
    let message =
        operator.submit_form(&format!("action=kick&session={port}&player=2&name=Alice&reason=no+ramming"));
    assert!(message.contains("kicked Alice"), "{message}");
    alice.run_until_end();
    assert!(alice.received.iter().any(|text| text.windows(10).any(|part| part == b"no ramming")));
    let history = page.server.ctl_json(&["history"]);
    assert_eq!(history["history"][0]["by"], "Ann (page)", "{history}");
}

#[test]
fn ban_lists_affected_players_and_refuses_a_stale_form() {
    let page = PageServer::start(&["--set", "session.trusted="]);
    let [mut alice, mut bob] = join_two(page.server.address(), ["Alice", "Bob"]);
    let (operator, port) = (page.operator(), page.server.ports[0]);
    let shown = operator.get(&format!("/ban/{port}/2")).body;
    let others =
        shown.split("id=\"others\"").nth(1).and_then(|rest| rest.split("</ul>").next()).expect("a list");
    assert!(others.contains("Bob") && !others.contains("Alice") && shown.contains("Ban all 2"), "{shown}");
    let ban = format!("action=ban&session={port}&player=2&name=Alice&expiry=2h&reason=ramming");
    let message = operator.submit_form(&ban);
    assert!(message.contains("check the list"), "the form lists no players: {message}");
    let shown = operator.get("/ban?target=127.0.0.0%2F8").body;
    assert!(
        shown.contains("Alice in ") && shown.contains("Bob in ") && shown.contains("Ban all 2"),
        "{shown}"
    );
    assert!(operator.get("/ban?target=127.0.0.1%2F8").body.contains("did you mean"));
    let message = operator.submit_form("action=ban_address&target=127.0.0.0%2F8");
    assert!(message.contains("check the list"), "the form lists no players: {message}");
    let message = operator.submit_form(&format!("{ban}&others={port}%233"));
    assert!(message.contains("banned 127.0.0.1") && message.contains("Alice, Bob"), "{message}");
    alice.run_until_end();
    bob.run_until_end();
    let bans = operator.get("/bans").body;
    assert!(
        bans.contains("127.0.0.1</td>") && bans.contains("ramming") && bans.contains("Ann (page)"),
        "{bans}"
    );
    assert!(operator.submit_form("action=ban_address&target=192.0.2.7").contains("banned 192.0.2.7"));
    operator.submit_form("action=unban&target=192.0.2.7");
    let message = operator.submit_form("action=unban&target=127.0.0.1");
    assert!(message.contains("unbanned 127.0.0.1"), "{message}");
    assert!(operator.get("/bans").body.contains("The ban list is empty."));
}

#[test]
fn operator_page_offers_the_console_commands() {
    let page = PageServer::start(&[]);
    let mut alice = LoopbackPlayer::join(page.server.address(), "Alice");
    let (operator, port) = (page.operator(), page.server.ports[0]);
    let about = format!("session={port}&player=2&name=Alice");
    let has = |alice: &LoopbackPlayer, text: &[u8]| {
        alice.received.iter().any(|payload| payload.windows(text.len()).any(|part| part == text))
    };
    operator.submit_form("action=say&text=hello+all");
    alice.run_until(|alice| has(alice, b"hello all"));
    operator.submit_form(&format!("action=tell&{about}&text=only+you"));
    alice.run_until(|alice| has(alice, b"only you"));
    assert!(operator.submit_form(&format!("action=mute&{about}")).contains("muted Alice"));
    assert!(operator.get(&format!("/player/{port}/2")).body.contains("in game, muted"));
    assert!(operator.submit_form(&format!("action=unmute&{about}")).contains("unmuted Alice"));
    let message = operator.submit_form(&format!(
        "action=set&session={port}&key=session.1.welcome&value=Ahoy%0D%0A%22all%22%0D%0A"
    ));
    assert!(message.contains("now"), "{message}");
    let settings = operator.get(&format!("/settings?session={port}")).body;
    assert!(settings.contains("Ahoy\n&quot;all&quot;</textarea>"), "{settings}");
    assert!(settings.contains("Maximum number of players. Values: a number from 1 to 16."), "{settings}");
    assert!(
        settings.contains("or <code>auto</code>.") && !settings.contains("<code>&quot;"),
        "values have no quotes: {settings}"
    );
    let message = operator.submit_form("action=set&key=web.enabled&value=false");
    assert!(message.contains("only be set in the configuration file"), "{message}");
    assert!(
        operator
            .submit_form(&format!("action=set&session={port}&key=session.1.port&value=1"))
            .contains("cannot change")
    );
    operator.submit_form("action=allow&target=192.0.2.0%2F24");
    assert!(operator.get("/bans").body.contains("192.0.2.0/24"));
    operator.submit_form(&format!("action=disallow&session={port}&target=192.0.2.0%2F24"));
    assert!(operator.get("/bans").body.contains("everyone who is not banned may join"));
    assert!(operator.submit_form(&format!("action=restart&session={port}")).contains("next round"));
    assert!(
        operator.submit_form("action=stop").contains("no session is selected"),
        "the page must not stop the server itself"
    );
    assert!(operator.submit_form(&format!("action=stop&session={port}")).contains("stopped 1 session"));
    alice.run_until_end();
    assert!(operator.get(&format!("/session/{port}")).body.contains("Start this session"));
    assert!(operator.submit_form(&format!("action=start&session={port}")).contains("✔ 1 session"));
    assert!(operator.submit_form("action=fly").contains("no player is selected"));
    let log = operator.get("/log").body;
    assert!(log.contains("round_ended") && !log.contains("[{"), "{log}");
    let log = operator.get("/log?show=chat").body;
    assert!(log.contains("hello all") && !log.contains("web_login"), "{log}");
}

/// The token does not give the rights of a user of the machine.
#[test]
fn browser_cannot_set_files_addresses_or_hooks() {
    let page = PageServer::start(&[]);
    let operator = page.operator();
    for key in
        ["session.1.manifests", "session.manifests", "web.bind", "log.file", "server.bans", "capture.file"]
    {
        let message = operator.submit_form(&format!("action=set&key={key}&value=/etc/passwd&save=on"));
        assert!(message.starts_with("✘ Not done: "), "{key}: {message}");
    }
    let settings = page.server.ctl_json(&["get", "manifests"])["settings"].clone();
    assert_eq!(settings[0]["value"], "[]");
    assert!(
        !operator.get(&format!("/settings?session={}", page.server.ports[0])).body.contains("set-manifests")
    );
}
