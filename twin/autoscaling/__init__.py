"""The problem of autoscaling: what each deployment of an application is granted, interval by interval."""
