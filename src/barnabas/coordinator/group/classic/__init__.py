"""Groups whose members compute their assignment themselves (JoinGroup, SyncGroup)."""
