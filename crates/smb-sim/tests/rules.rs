//! Policy by who opens what and how, through the whole server: what an open says about itself, and
//! that it has its say from CREATE to CLOSE.

use std::{sync::Arc, time::Duration};

use durability::{InForce, Network, Policy, Rule, Rules};
use smb_client::{CreateArgs, Options, Signing};
use smb_sim::{MemoryOptions, SHARE, Sim, SimClient, SimServer};
use smb_wire::{
    create_context::{DurableHandleFlags, DurableHandleReconnectV2, DurableHandleRequestV2},
    ids::Guid,
    msg::{CreateOptions, Dialect, OplockLevel},
};
use vfs::Env;

const HOST: &str = "treat-host-as-stable-storage";

fn rule(name: &str, policy: &str) -> Rule {
    Rule {
        name: name.to_owned(),
        policy: policy.parse().unwrap(),
        ..Rule::default()
    }
}

fn rules() -> Arc<Rules> {
    let rules = vec![
        Rule {
            paths: vec!["db/**".parse().unwrap()],
            write_through: Some(true),
            ..rule("database", "strict-sync")
        },
        Rule {
            paths: vec!["*.tmp".parse().unwrap()],
            users: vec!["ALICE".to_owned()],
            dialects: Some(0x300..=0x311),
            ..rule("scratch", HOST)
        },
        Rule {
            clients: vec![Network {
                address: "203.0.113.0".parse().unwrap(),
                prefix: 24,
            }],
            ..rule("nobody comes from there", HOST)
        },
    ];
    Arc::new(Rules::new(rules).unwrap())
}

fn options(dialect: Dialect) -> Options {
    Options::dialect(dialect).signing(Signing::Required)
}

fn in_force(server: &SimServer, path: &str) -> Option<InForce> {
    let shares = server.server.shares();
    shares.find(SHARE).unwrap().gate.in_force_at(path)
}

fn why(server: &SimServer, path: &str) -> String {
    let Some(found) = in_force(server, path) else {
        return "not open".to_owned();
    };
    found
        .rule
        .map_or("the share".into(), |rule| rule.name.clone())
}

#[test]
fn an_open_says_who_opens_what_and_how() {
    let mut sim = Sim::new(1);
    let server = SimServer::new(&mut sim, &MemoryOptions::default()).unwrap();
    let gate = Arc::clone(&server.server.shares().find(SHARE).unwrap().gate);
    sim.run(async {
        gate.set_rules(rules(), "test").await;
        let mut new = SimClient::enter(&server, options(Dialect::SMB_3_1_1))
            .await
            .unwrap();
        let mut old = SimClient::enter(&server, options(Dialect::SMB_2_1))
            .await
            .unwrap();

        let tmp = new.create(&CreateArgs::create("A.tmp")).await.unwrap();
        assert_eq!(why(&server, "a.TMP"), "scratch");
        new.write_at(tmp, 0, b"scratch").await.unwrap();
        new.flush(tmp).await.unwrap();
        let counters = gate.counters();
        assert_eq!((counters.flushes_ignored, counters.flushes_honored), (1, 0));

        // The old dialect matches no rule: the file is honored while it has it open too.
        let also = old.create(&CreateArgs::open("a.tmp")).await.unwrap();
        let found = in_force(&server, "a.tmp").unwrap();
        assert_eq!((found.policy, found.opens), (Policy::Honor, 2));
        assert_eq!(found.because.dialect, 0x0210);
        assert_eq!(&*found.because.user, "alice");
        assert!(found.because.client.is_some());
        new.flush(tmp).await.unwrap();
        assert_eq!(gate.counters().flushes_honored, 1);
        old.close(also).await.unwrap();
        assert_eq!(why(&server, "a.tmp"), "scratch");
        // A stream counts for its file.
        let stream = old.create(&CreateArgs::create("a.tmp:s")).await.unwrap();
        assert_eq!(in_force(&server, "a.tmp").unwrap().policy, Policy::Honor);
        old.close(stream).await.unwrap();
        new.close(tmp).await.unwrap();
        assert_eq!(why(&server, "a.tmp"), "not open");

        // The changes that CREATE itself makes are judged by the open that it makes.
        new.create(&CreateArgs::create_directory("db"))
            .await
            .unwrap();
        let through = CreateArgs::create("db\\t").options(CreateOptions::WRITE_THROUGH);
        let table = new.create(&through).await.unwrap();
        assert_eq!(why(&server, "db/t"), "database");
        assert_eq!(why(&server, "db"), "the share");
        let before = gate.counters();
        new.write_at(table, 0, b"row").await.unwrap();
        // Under strict-sync one sync of the inode, and no durable write.
        let after = gate.counters();
        assert_eq!(after.writes_durable, before.writes_durable);
        assert!(after.syncs_all > before.syncs_all);
        // The connection goes, and its opens with it.
        new.cut();
        server.env().sleep(Duration::from_secs(5)).await;
        assert_eq!(why(&server, "db/t"), "not open");
    })
    .unwrap();
}

#[test]
fn an_open_that_its_client_has_back_is_judged_by_the_new_connection() {
    let mut sim = Sim::new(2);
    let server = SimServer::new(&mut sim, &MemoryOptions::default()).unwrap();
    let gate = Arc::clone(&server.server.shares().find(SHARE).unwrap().gate);
    sim.run(async {
        let new = Rule {
            dialects: Some(0x311..=0x311),
            ..rule("new", "strict-sync")
        };
        let rules = Arc::new(Rules::new(vec![new]).unwrap());
        gate.set_rules(rules, "test").await;
        let (create_guid, flags) = (Guid([0x44; 16]), DurableHandleFlags::empty());
        let of = |dialect| options(dialect).guid(Guid([1; 16]));
        let args = || CreateArgs::open_if("f").oplock(OplockLevel::BATCH);
        let first = args().durable_v2(DurableHandleRequestV2 {
            timeout_ms: 60_000,
            flags,
            create_guid,
        });
        let before = of(Dialect::SMB_3_0_2);
        let mut client = SimClient::enter(&server, before).await.unwrap();
        let file_id = client.create(&first).await.unwrap();
        assert_eq!(why(&server, "f"), "the share");
        client.cut();
        // A client's connections have one dialect, and the server has not noticed the end of this one yet.
        server.env().sleep(Duration::from_secs(5)).await;
        let again = args().durable_v2_again(DurableHandleReconnectV2 {
            file_id,
            create_guid,
            flags,
        });
        let now = of(Dialect::SMB_3_1_1);
        let mut client = SimClient::enter(&server, now).await.unwrap();
        client.create(&again).await.unwrap();
        assert_eq!(why(&server, "f"), "new");
    })
    .unwrap();
}
