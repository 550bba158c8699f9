"""The autoscaling problem for the commands: what each deployment of an application is granted."""
