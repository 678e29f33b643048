//! What SONiC's models say of the configurations that we write for it.

use gradwire_schemas::Models;

#[test]
fn a_colour_that_sonic_does_not_know_is_refused_by_its_models() {
    let models = Models::load("sonic", &["sonic-device_metadata", "sonic-wred-profile"]);
    let document = |ecn: &str| {
        format!(
            r#"{{"sonic-wred-profile:sonic-wred-profile": {{"WRED_PROFILE": {{
                "WRED_PROFILE_LIST": [{{"name": "A", "ecn": "{ecn}"}}]}}}}}}"#
        )
    };
    assert_eq!(models.judge_alike(&document("ecn_all")), Ok(()));
    assert!(models.judge_alike(&document("ecn_blue")).is_err());
}
