"""The daily job: new decisions are appended to the archive, a policy is trained, and the better one is exported."""
