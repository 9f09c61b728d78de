//! What a power cut right after the start of a server leaves that no client put there.

use crate::Rig;

#[test]
fn nothing_of_the_servers_own_is_left() {
    let Some(mut rig) = Rig::started("", "durability = \"honor\"") else {
        return;
    };
    rig.restart();
    for profile in ["posix-min", "journal", "log-tree"] {
        for seed in 0..10 {
            rig.server.kill();
            rig.mount.tell(&format!("reset {seed} {profile}"));
            rig.server.start();
            // Somebody is served: a cut while it starts, already listening, ends it by itself.
            drop(rig.server.tree());
            rig.mount.tell(&format!("cut {seed}"));
            rig.server.kill();
            rig.mount.tell("thaw");
            rig.server.start();
            for entry in rig.server.tree().list("", "*").unwrap() {
                let name = entry.file_name;
                assert!(
                    matches!(name.as_str(), "." | ".."),
                    "{profile}, seed {seed}: {name} is left"
                );
            }
        }
    }
}
