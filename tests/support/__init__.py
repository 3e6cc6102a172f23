"""What several tests share: servers, files, messages and the running of commands."""
