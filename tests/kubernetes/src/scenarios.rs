//! What must work, as stories.

use std::pin::Pin;

use crate::cluster::Cluster;

mod access;
mod deletes;
mod guide;
mod installed;
mod kinds;
mod machines;
mod outage;
mod replicas;
mod resources;
mod rights;
mod startup;

type Scenario = for<'a> fn(&'a Cluster) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Lists functions as scenarios, by their names.
macro_rules! scenarios {
    ($($room:ident::$name:ident,)*) => {
        pub(crate) fn all() -> Vec<(&'static str, Scenario)> {
            vec![$((stringify!($name), |cluster| Box::pin($room::$name(cluster)))),*]
        }
    };
}

scenarios! {
    // The first, while it is empty.
    guide::the_guide_leads_from_an_empty_cluster_to_a_machine,
    installed::all_components_together_are_taken,
    installed::pods_of_ours_are_allowed_where_others_are_not,
    rights::every_right_of_the_broker_has_a_reason,
    rights::the_broker_uses_its_rights_and_asks_for_no_more,
    rights::what_is_not_granted_is_denied,
    rights::a_stolen_token_opens_nothing_else,
    machines::a_machine_is_made_from_a_class_and_a_secret_of_the_cluster,
    machines::an_edited_class_and_a_rotated_secret_reach_the_driver,
    machines::a_class_of_today_is_served_by_its_provider,
    machines::a_class_without_a_secret_works,
    machines::a_secret_without_the_expected_keys_is_named_by_the_driver,
    machines::a_class_of_one_mebibyte_reaches_the_driver,
    deletes::machines_are_deleted_after_their_class_and_secret_are_gone,
    kinds::a_kind_is_served_once_its_definition_is_installed,
    kinds::a_kind_is_served_once_the_broker_may_read_it,
    access::a_secret_of_another_namespace_is_denied,
    access::a_secret_of_another_namespace_is_served_where_the_policy_says_so,
    access::a_token_that_expires_or_is_for_others_gets_nobody_in,
    access::a_revoked_account_loses_its_open_stream,
    outage::work_goes_on_while_the_api_server_is_away,
    replicas::drivers_find_every_replica_from_one_address,
    replicas::a_replica_that_is_killed_under_load_loses_nothing_and_makes_nothing_twice,
    replicas::replicas_stay_known_while_the_api_server_is_away,
    replicas::a_name_that_another_replica_has_is_not_fought_over,
    resources::a_driver_is_shown_with_what_happens_to_it,
    resources::a_driver_of_two_brokers_has_two_sessions,
    resources::what_a_killed_broker_left_is_removed_by_another,
    resources::a_driver_that_idles_or_works_is_hardly_written,
    resources::drivers_are_shown_once_their_definition_is_installed,
    resources::a_kind_that_cannot_be_read_is_a_condition_of_its_driver,
    startup::a_kubeconfig_that_cannot_be_used_is_told_at_the_start,
    startup::a_broker_without_any_cluster_says_where_it_looked,
}
